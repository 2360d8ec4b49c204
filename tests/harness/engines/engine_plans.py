"""Plans for engine tests: a dozen requests stand for every workload."""

from harness.config.compose import compose_grid
from harness.config.schema import WorkloadConfig
from harness.plan import Plan, make_plan
from workloads import LoadedWorkload, Request


def _load(workload: WorkloadConfig, seed: int) -> LoadedWorkload:
    del seed
    requests = [
        Request(
            id=str(i),
            part="edits",
            messages=[{"role": "user", "content": f"edit {i}"}],
            max_output_tokens=8,
            distance=0.1,
        )
        for i in range(12)
    ]
    return LoadedWorkload(
        name=workload.name, requests=requests, parts=["edits"], source="test", licence="none", citation="none"
    )


def plan(*overrides: str) -> Plan:
    return make_plan(compose_grid(list(overrides)), _load)

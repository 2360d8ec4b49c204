"""Where a sweep's numbers come from: every distinct value, and how many repeats share it."""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from analysis import paper
from analysis.load import Sweep, label_of
from harness.schema import Provenance, Record

__all__ = ["Fact", "arm_configs", "cautions", "log_tails", "provenance_facts", "stand_ins"]

_MAX_VALUES = 8
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""Terminal colours in logs."""
_STAND_IN = re.compile(r"; buckets by ([^;]*), as a stand-in")


@dataclass(kw_only=True, slots=True)
class Fact:
    """One line of provenance.

    Args:
        name: What it is.
        values: Distinct values, the most frequent first, with a count where there are several.
        must_agree: Whether several values make the repeats doubtful to compare.
        num_values: Distinct values before the list was cut.
    """

    name: str
    values: list[str]
    must_agree: bool
    num_values: int


def provenance_facts(sweep: Sweep) -> list[Fact]:
    """Provenance of the records that count, or of failed attempts when none succeeded."""
    records = list(sweep.records.values()) or sweep.failed
    facts = []
    for name, value, must_agree in _FACTS:
        counts = Counter(text for record in records if (text := value(record.provenance)))
        facts += [_fact(name, counts, must_agree)] if counts else []
    if records:
        started = [r.provenance.started_utc for r in records if r.provenance.started_utc]
        finished = [r.provenance.finished_utc for r in records if r.provenance.finished_utc]
        if started and finished:
            span = f"{min(started)} to {max(finished)}"
            facts.append(Fact(name="Measured (UTC)", values=[span], must_agree=False, num_values=1))
        overrides = Counter(" ".join(record.overrides) for record in records if record.overrides)
        facts += [_fact("Command-line overrides", overrides, False)] if overrides else []
    return facts


def cautions(facts: list[Fact]) -> list[str]:
    """One sentence for each fact that should be the same in all records and is not."""
    return [
        f"{fact.name}: the records hold {fact.num_values} different values."
        for fact in facts
        if fact.must_agree and fact.num_values > 1
    ]


def stand_ins(sweep: Sweep) -> list[str]:
    """One sentence for each workload whose edit distances are not of the model's own outputs, as the paper's are."""
    found = {
        (r.workload, m[1])
        for r in sweep.records.values()
        if (m := _STAND_IN.search(r.provenance.workload_source or ""))
    }
    return [
        f"{paper.workload_name(workload)}: buckets by {basis}, not by the edit distance of the model's own outputs "
        "(Section 5.1), which `python -m harness generate` and `python -m harness buckets` give."
        for workload, basis in sorted(found)
    ]


def arm_configs(sweep: Sweep) -> list[tuple[str, str]]:
    """(arm label, whole configuration as JSON) of the first recorded cell of each arm."""
    configs: dict[str, str] = {}
    for record in [*sweep.records.values(), *sweep.failed]:
        text = json.dumps(record.config, indent=2, sort_keys=True, ensure_ascii=False)
        configs.setdefault(label_of(record), text)
    return list(configs.items())


def log_tails(records: list[Record], *, max_tails: int = 30, max_chars: int = 4000) -> list[tuple[str, str]]:
    """(which repeat, why and the log's last lines) of failed attempts; long lists and logs are cut."""
    tails = []
    for record in records[:max_tails]:
        failure = record.failure
        where = f"{record.model}, {record.workload}, batch size {record.batch_size}, T={record.temperature:g}, "
        where += f"{label_of(record)}, repeat {record.repeat}, attempt {record.attempt} (cell {record.cell_id})"
        if failure is None:
            tails.append((where, "the record gives no reason"))
            continue
        log = _COLOUR.sub("", failure.log_tail)[-max_chars:]
        tails.append((where, f"{failure.stage}: {failure.kind}: {failure.message}" + (f"\n\n{log}" if log else "")))
    if len(records) > max_tails:
        tails.append((f"{len(records) - max_tails} more failed attempts", "See their record.json."))
    return tails


def _fact(name: str, counts: Counter[str], must_agree: bool) -> Fact:
    values = [text if len(counts) == 1 else f"{text} ({count})" for text, count in counts.most_common(_MAX_VALUES)]
    if len(counts) > _MAX_VALUES:
        values.append(f"and {len(counts) - _MAX_VALUES} more")
    return Fact(name=name, values=values, must_agree=must_agree, num_values=len(counts))


def _commit(p: Provenance) -> str:
    return f"{p.git_commit} (uncommitted changes)" if p.git_commit and p.git_dirty else p.git_commit or ""


def _packages(p: Provenance) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(p.packages.items()))


def _gpus(p: Provenance) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(p.gpu_names).items())


def _cpu(p: Provenance) -> str:
    return f"{p.cpu_model}, {p.num_cpus} cores" if p.cpu_model and p.num_cpus else p.cpu_model


def _hash(text: str | None) -> str:
    return text[:16] if text else ""


_FACTS: tuple[tuple[str, Callable[[Provenance], str], bool], ...] = (
    ("Git commit", _commit, True),
    ("GPUs", _gpus, True),
    ("GPU driver", lambda p: p.gpu_driver or "", True),
    ("CPU", _cpu, True),
    ("Host", lambda p: p.host, False),
    ("Platform", lambda p: p.platform, False),
    ("Python", lambda p: p.python, True),
    ("Packages", _packages, True),
    ("Seed", lambda p: str(p.seed), True),
    ("Model weights", lambda p: " ".join(filter(None, (p.model_source, _hash(p.model_fingerprint)))), False),
    ("Drafter", lambda p: " ".join(filter(None, (p.drafter_source, _hash(p.drafter_fingerprint)))), False),
    (
        "Coefficients",
        lambda p: " ".join(filter(None, (p.coefficients_source, _hash(p.coefficients_fingerprint)))),
        False,
    ),
    ("Workload", lambda p: " ".join(filter(None, (p.workload_source, _hash(p.workload_fingerprint)))), False),
    ("Rows dropped by filters", lambda p: ", ".join(f"{k}: {v}" for k, v in p.workload_dropped.items()), False),
)

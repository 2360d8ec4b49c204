"""Whether a server is the one that was asked for, by its own words: its log, its metrics, its plugin's proofs.

vLLM only logs a plugin that raises, and takes the last of two contradicting flags; a cell must not be measured then.
"""

import json
from pathlib import Path
from typing import Any

from harness.engines.base import ServerChecks, ServerCommand
from harness.engines.probes import logged_config

__all__ = ["verify_server"]


def verify_server(command: ServerCommand, *, log: str, metrics: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Compare a server with its checks.

    Args:
        command: What was started.
        log: The server's log since then.
        metrics: Its counters, from `probes.parse_metrics`.

    Returns:
        Problems, one sentence each; and what was found, for the record.
    """
    checks = command.checks
    config = logged_config(log)
    problems = _config_problems(checks, config, metrics)
    proofs, unreadable = _read_proofs(command.proof_dir)
    problems += unreadable + _proof_problems(checks, proofs)
    return problems, {"engine_config": _worth_recording(config), "proofs": proofs}


def _config_problems(checks: ServerChecks, config: dict[str, str], metrics: dict[str, Any]) -> list[str]:
    expected = dict(checks.engine_config)
    if checks.max_num_seqs is not None:
        expected["max_num_seqs"] = str(checks.max_num_seqs)
    if not expected:
        return []
    if not config:
        return ["The server did not log its configuration, so that prefix caching being off cannot be verified."]
    problems = [
        f"The server runs with {key}={config.get(key, '(not logged)')} instead of {value}; see engine.extra_args "
        "and model.extra_args."
        for key, value in expected.items()
        if config.get(key) != value
    ]
    caching = metrics.get("enable_prefix_caching")
    wanted = expected.get("enable_prefix_caching")
    if wanted is not None and caching != wanted:
        problems.append(f"The server's metrics say enable_prefix_caching={caching} instead of {wanted}.")
    return problems


def _read_proofs(proof_dir: Path | None) -> tuple[dict[str, Any], list[str]]:
    proofs: dict[str, Any] = {}
    problems = []
    for path in sorted(proof_dir.glob("*.json")) if proof_dir is not None else []:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            problems.append(f"{path} is not readable ({error}).")
            continue
        if not isinstance(content, dict):
            problems.append(f"{path} is not a JSON object.")
            continue
        proofs[path.stem] = content
    return proofs, problems


def _proof_problems(checks: ServerChecks, proofs: dict[str, Any]) -> list[str]:
    problems = []
    if checks.worker_proof is not None:
        workers = {name: proof for name, proof in proofs.items() if name.startswith("worker-")}
        if len(workers) < checks.num_workers:
            problems.append(
                f"The plugin took effect in {len(workers)} of {checks.num_workers} workers: "
                "a worker writes a proof file, and the log says why one did not."
            )
        problems += [
            f"{name}: the plugin runs with {key}={proof.get(key)!r} instead of {value!r}."
            for name, proof in workers.items()
            for key, value in checks.worker_proof.items()
            if proof.get(key) != value
        ]
    if checks.cpu_proof:
        engines = {name: proof for name, proof in proofs.items() if name.startswith("cpu-")}
        if not any(proof.get("cpu_patches") for proof in engines.values()):
            problems.append("The CPU engine's patches are in force in no worker; the log says why.")
    return problems


def _worth_recording(config: dict[str, str]) -> dict[str, str]:
    """Leave out nested configurations, of which only the opening name is left."""
    return {key: value for key, value in config.items() if not value.endswith(("()", "{}", "[]"))}

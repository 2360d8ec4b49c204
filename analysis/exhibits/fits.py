"""Fits of the estimator (`python -m harness fit`), as the exhibits find and read them.

A fit has `coefficients.json`, `estimators/<terms>.json` (the ladder and the ablations), `estimators.csv` (their
quality on the held-out half), `evaluation_<workload>.csv` (the same on other workloads, which `fit.json` lists) and
`acceptance_by_group.csv`. Fits are looked for in `<sweep>/fits/<model>`, and, for the
experiments that show them, in `fits/<model>` beside the sweep.
"""

import csv
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from analysis.exhibits.evidence import Evidence

__all__ = ["BETA", "EQUATION_1", "NEEDS", "REST", "fit_coefficients", "fit_folders", "read_json", "read_rows"]

_Row = TypeVar("_Row")

_FOLDER = "fits"
NEEDS = (
    "a fit on the target's own outputs (python -m harness fit) in "
    f"{_FOLDER}/<model> beside or inside the sweep's folder"
)

BETA = tuple(f"beta_{k}" for k in range(1, 16))
REST = ("w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")
EQUATION_1 = "equation_1"
_EXPERIMENTS = ("calibration", "ablation", "estimator_ladder")


def fit_folders(evidence: Evidence) -> dict[str, Path]:
    """Model -> folder of its fit, of the sweep's fidelity; another one is named in the problems."""
    root = evidence.sweep.root
    places = [root / _FOLDER]
    if evidence.experiment in _EXPERIMENTS:
        places.append(root.parent / _FOLDER)
    models = {cell.key.point.model for cell in evidence.cells}
    found: dict[str, Path] = {}
    for place in places:
        for path in sorted(place.glob("*/coefficients.json")):
            model = path.parent.name
            raw = read_json(evidence, path)
            if model in found or model not in models or raw is None:
                continue
            provenance = raw.get("provenance")
            fidelity = provenance.get("fidelity") if isinstance(provenance, dict) else None
            if fidelity != evidence.fidelity:
                evidence.sweep.name_problem(
                    f"{path.parent}: a fit of fidelity {fidelity}, this sweep's is {evidence.fidelity}; left out.",
                )
                continue
            found[model] = path.parent
    return found


def fit_coefficients(evidence: Evidence) -> dict[tuple[str, str], Mapping[str, float]]:
    """(Model, terms) -> its coefficients by the names of Table 5; unreadable files are named in the problems."""
    found: dict[tuple[str, str], Mapping[str, float]] = {}
    for model, folder in fit_folders(evidence).items():
        files = {EQUATION_1: folder / "coefficients.json"}
        files |= {path.stem: path for path in sorted((folder / "estimators").glob("*.json"))}
        for terms, path in files.items():
            raw = read_json(evidence, path)
            if raw is None:
                continue
            try:
                values = dict(zip(BETA, map(float, raw["beta"]), strict=True)) | {k: float(raw[k]) for k in REST}
                if not all(map(math.isfinite, values.values())):
                    raise ValueError("a value is not finite")
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                evidence.sweep.name_problem(f"{path}: not readable as coefficients ({error!r}).")
                continue
            found[model, terms] = values
    return found


def read_json(evidence: Evidence, path: Path) -> dict[str, Any] | None:
    """Fields of a JSON file; null where it cannot be read, which is a problem."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise ValueError("it holds no fields by name")
    except (OSError, ValueError, RecursionError) as error:
        evidence.sweep.name_problem(f"{path}: not readable ({error}).")
        return None
    return raw


def read_rows(evidence: Evidence, path: Path, parse: Callable[[dict[str, str]], _Row | None]) -> list[_Row]:
    """Rows of a CSV file that the figure shows; none where one of them cannot be read, which is a problem."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [row for line in csv.DictReader(file) if (row := parse(line)) is not None]
    except (OSError, ValueError, csv.Error) as error:
        evidence.sweep.name_problem(f"{path}: not readable ({error}).")
    except KeyError as error:
        evidence.sweep.name_problem(f"{path}: the column {error.args[0]} is missing.")
    except (TypeError, OverflowError) as error:
        evidence.sweep.name_problem(f"{path}: a row is cut short or no number ({error}).")
    return []

"""An estimator's calibration: reliability, acceptance by position and by match, and what each feature is worth."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.figures.layout import add_title, fit_height, new_figure
from analysis.figures.style import FigureFile, arm_styles, save, styled

__all__ = ["EstimatorData", "draw_estimator"]

_MAX_POSITION = 15


@dataclass(kw_only=True, slots=True, frozen=True)
class EstimatorData:
    """What a fit computed on held-out labels.

    Args:
        model: Name of the target model.
        fidelity: What kind of engine made the outputs.
        reliability: `low`, `high`, `positions`, `predicted`, `accepted` per bin.
        by_position: `position`, `graded`, `acceptance` (Figure 2).
        by_group: The same with `group` and `steps` (Figure 4).
        deltas: `ablation`, `log_loss_increase` per matched step (Figure 6, right).
    """

    model: str
    fidelity: str
    reliability: pd.DataFrame
    by_position: pd.DataFrame
    by_group: pd.DataFrame
    deltas: pd.DataFrame


def draw_estimator(data: EstimatorData, folder: Path, name: str = "estimator") -> FigureFile:
    """Draw four panels into `<folder>/<name>.svg` and `.pdf`."""
    title = f"Estimator of {data.model}, held-out half (engine {data.fidelity})"
    with styled():
        figure, axes = new_figure(2, 2, panel_width_in=3.3, share_y="none")
        _draw_reliability(axes[0][0], data.reliability)
        _draw_positions(axes[0][1], {"given a match": data.by_position}, "Acceptance by draft position")
        groups = {
            f"{group} ({int(table['steps'].iloc[0]):,} steps)": table
            for group, table in data.by_group.groupby("group", sort=False)
            if table["steps"].iloc[0]
        }
        _draw_positions(axes[1][0], groups, "By match length n and copy length m")
        _draw_deltas(axes[1][1], data.deltas)
        add_title(figure, title)
        fit_height(figure, axes, 1.8)
        svg, pdf = save(figure, folder, name)
    num_positions, num_steps = int(data.by_position["graded"].sum()), int(data.by_position["graded"].iloc[0])
    return FigureFile(
        name=name,
        title=title,
        caption=f"{num_positions:,} graded positions of {num_steps:,} steps with a match. Reliability: mean prediction "
        "and share accepted per bin, bars show its share of positions. Acceptance is conditional on the positions "
        "before; positions after the first rejection are not graded. Increase in log-loss: the feature left out and "
        "the others fitted anew.",
        svg=svg,
        pdf=pdf,
        width_in=figure.get_figwidth(),
    )


def _draw_reliability(axis: Any, bins: pd.DataFrame) -> None:
    style = arm_styles(["estimator"])["estimator"]
    axis.plot([0, 1], [0, 1], color="0.5", linewidth=0.8, linestyle="--", label="calibrated")
    share = bins["positions"] / bins["positions"].sum()
    axis.bar(
        bins["low"], share, width=bins["high"] - bins["low"], align="edge", color="0.88", label="share of positions"
    )
    axis.plot(bins["predicted"], bins["accepted"], marker=style.marker, color=style.color, label="estimator")
    axis.set(title="Reliability", xlabel="Predicted acceptance", ylabel="Accepted", xlim=(0, 1), ylim=(0, 1.02))
    axis.legend(loc="upper left")


def _draw_positions(axis: Any, tables: dict[str, pd.DataFrame], title: str) -> None:
    styles = arm_styles(list(tables))
    for label, table in tables.items():
        style = styles[label]
        axis.plot(
            table["position"],
            table["acceptance"],
            marker=style.marker,
            markersize=4,
            linestyle=style.line,
            color=style.color,
            label=label,
        )
    axis.set(title=title, xlabel="Draft position", ylabel="Conditional acceptance", xlim=(0.5, _MAX_POSITION + 0.5))
    axis.set_xticks(range(1, _MAX_POSITION + 1, 2))
    if len(tables) > 1:
        axis.legend(loc="lower right", fontsize=6.5)


def _draw_deltas(axis: Any, deltas: pd.DataFrame) -> None:
    labels = [name.removeprefix("no_").replace("_", " ") for name in deltas["ablation"]]
    labels = ["all match features" if label == "match features" else label for label in labels]
    axis.barh(labels, deltas["log_loss_increase"], color=arm_styles(["estimator"])["estimator"].color, height=0.6)
    axis.axvline(0.0, color="0.3", linewidth=0.8)
    axis.invert_yaxis()
    axis.set(title="Feature left out", xlabel="Log-loss increase, nats per step")

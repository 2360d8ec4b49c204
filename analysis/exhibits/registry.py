"""Every table and figure of the paper that this project makes, in the paper's order."""

from dataclasses import dataclass, field
from pathlib import Path

from analysis.exhibits import arms, calibration, components, figures, fits, policies, positions, speedups, steps
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Exhibit, Made, Missing
from analysis.exhibits.ranges import range_twin

__all__ = ["EXHIBITS", "Exhibits", "make_exhibits"]

_FIT = fits.NEEDS

EXHIBITS = (
    Exhibit(
        label="Table 1",
        title="Policies where they are lossless, over DSpark",
        experiments=("policies",),
        needs=policies.NEEDS_1,
        make=policies.table_1,
    ),
    Exhibit(
        label="Table 5",
        title="Fitted estimator coefficients",
        experiments=("calibration",),
        needs=_FIT,
        make=calibration.table_5,
        shows_fit=True,
    ),
    Exhibit(
        label="Table 6",
        title="The estimator built up one term at a time",
        experiments=("estimator_ladder",),
        needs=arms.NEEDS_6,
        make=arms.table_6,
    ),
    Exhibit(
        label="Table 7",
        title="Coefficients of estimators 1 to 5",
        experiments=("calibration",),
        needs=_FIT,
        make=calibration.table_7,
        shows_fit=True,
    ),
    Exhibit(
        label="Table 8",
        title="Chain value at the slot price",
        experiments=("chain_value",),
        needs=steps.NEEDS_8,
        make=steps.table_8,
    ),
    Exhibit(
        label="Table 10",
        title="Out of distribution for the DSpark drafter",
        experiments=speedups.EXPERIMENTS_10,
        needs=speedups.NEEDS_10,
        make=speedups.table_10,
    ),
    Exhibit(
        label="Table 11",
        title="Speedup over vanilla decoding by edit distance",
        experiments=("figure1",),
        needs=speedups.NEEDS_11,
        make=speedups.table_11,
        others=("nextcoder",),
    ),
    Exhibit(
        label="Table 12",
        title="Speedup over DSpark by workload",
        experiments=("editing",),
        needs=speedups.NEEDS_12,
        make=speedups.table_12,
        others=speedups.OTHERS_12,
        only_asked=True,
    ),
    Exhibit(
        label="Table 13",
        title="Policies in four sampling regimes, edits",
        experiments=("policies",),
        needs=policies.NEEDS_13,
        make=policies.table_13,
    ),
    Exhibit(
        label="Table 14",
        title="Policies in four sampling regimes, chat",
        experiments=("policies",),
        needs=policies.NEEDS_14,
        make=policies.table_14,
    ),
    Exhibit(
        label="Table 15",
        title="Policies above T=0 on SPEED-Bench",
        experiments=("speedbench_t1",),
        needs=policies.NEEDS_15,
        make=policies.table_15,
    ),
    Exhibit(
        label="Table 16",
        title="Stale budget sizing",
        experiments=("staleness",),
        needs=steps.NEEDS_16,
        make=steps.table_16,
    ),
    Exhibit(
        label="Section 5.4",
        title="Hybrid Spark over the n-gram drafter with AV",
        experiments=("figure1",),
        needs="Hybrid Spark and the n-gram drafter with adaptive verification",
        make=arms.ngram_alone,
    ),
    Exhibit(
        label="Section 5.5",
        title="Transfer of the estimator between models",
        experiments=("transfer",),
        needs="Hybrid Spark with its own and with another model's coefficients",
        make=arms.transfer,
    ),
    Exhibit(
        label="Section 5.5 (match features)",
        title="All match features removed from the n-gram drafter with AV",
        experiments=("match_features",),
        needs="the n-gram drafter with adaptive verification, with and without match features",
        make=arms.match_features,
    ),
    Exhibit(
        label="Section 5.5 (one match feature)",
        title="One match feature removed from the n-gram drafter with AV",
        experiments=("one_match_feature",),
        needs="the n-gram drafter with adaptive verification, and the same without one match feature",
        make=arms.one_match_feature,
    ),
    Exhibit(
        label="Section 5.6",
        title="Overhead of the second drafter",
        experiments=("overhead",),
        needs="DSpark and Hybrid Spark that never selects the n-gram chain",
        make=arms.overhead,
    ),
    Exhibit(
        label="Section E (inside Hybrid Spark)",
        title="The estimators of Table 6 inside Hybrid Spark",
        experiments=("hybrid_ladder",),
        needs="Hybrid Spark with the full estimator and with one of the estimators 1 to 5 (Table 7)",
        make=arms.hybrid_ladder,
    ),
    Exhibit(
        label="Figure 1",
        title="Speedup over vanilla decoding by edit distance",
        experiments=("figure1",),
        needs=speedups.NEEDS_11,
        make=figures.figure_1,
        others=("nextcoder",),
    ),
    Exhibit(
        label="Figure 2",
        title="Conditional acceptance by draft position",
        experiments=("calibration",),
        needs=positions.NEEDS,
        make=positions.figure_2,
    ),
    Exhibit(
        label="Figure 4",
        title="Conditional acceptance by match and copy length",
        experiments=("calibration",),
        needs=_FIT,
        make=calibration.figure_4,
        shows_fit=True,
    ),
    Exhibit(
        label="Figure 5",
        title="Speedup over DSpark by workload, batch size and edit distance",
        experiments=("editing",),
        needs=speedups.NEEDS_12,
        make=figures.figure_5,
        others=("nextcoder", "chat"),
        only_asked=True,
    ),
    Exhibit(
        label="Figure 6",
        title="Components of Hybrid Spark, each removed",
        experiments=("ablation",),
        needs="Hybrid Spark with and without a component (left), " + _FIT + " (right)",
        make=components.figure_6,
        others=("calibration",),
        shows_fit=True,
    ),
    Exhibit(
        label="Figure 6 (left), values",
        title="Throughput with one component removed",
        experiments=("ablation",),
        needs="Hybrid Spark with and without a component",
        make=arms.ablation,
    ),
    Exhibit(
        label="Figure 7",
        title="Acceptance length per workload",
        experiments=("editing",),
        needs=speedups.NEEDS_12,
        make=figures.figure_7,
        others=speedups.OTHERS_12,
        only_asked=True,
    ),
    Exhibit(
        label="Figure 8",
        title="EditBench by edit distance",
        experiments=("editbench",),
        needs=figures.NEEDS_8,
        make=figures.figure_8,
        others=("editing",),
    ),
    Exhibit(
        label="Figure 9",
        title="Context length on SPEED-Bench",
        experiments=("context_length",),
        needs=figures.NEEDS_9,
        make=figures.figure_9,
    ),
)


@dataclass(kw_only=True, slots=True)
class Exhibits:
    """What a sweep's records gave of the paper.

    Args:
        made: Exhibits in the paper's order, each with its tables, twins and figures.
        missing: Those without records.
    """

    made: list[tuple[Exhibit, Made]] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)


def make_exhibits(evidence: Evidence, folder: Path) -> Exhibits:
    """Make every exhibit that the records allow.

    Args:
        evidence: A sweep's results.
        folder: Where figures go.
    """
    result = Exhibits()
    known = {name for exhibit in EXHIBITS for name in (*exhibit.experiments, *exhibit.others)}
    for exhibit in EXHIBITS:
        asked = evidence.experiment in (*exhibit.experiments, *exhibit.others)
        belongs = asked or not (exhibit.only_asked and evidence.experiment in known)
        made = exhibit.make(evidence, folder) if evidence.fidelity is not None and belongs else Made()
        if made:
            twin = range_twin(evidence, exhibit.label)
            made.twins += [twin] if twin else []
            result.made.append((exhibit, made))
        else:
            result.missing.append(Missing(exhibit=exhibit, asked=asked, smoke=evidence.fidelity == "cpu"))
    return result

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workloads


@pytest.mark.parametrize(
    ("distance", "expected"),
    [
        (0.0, "0-5"),
        (0.0499, "0-5"),
        (0.05, "5-10"),
        (0.1, "10-15"),
        (0.15, "15-20"),
        (3 * 0.05, "15-20"),  # 0.15000000000000002
        (1 - 0.85, "15-20"),
        (1 - 0.9, "10-15"),  # 0.09999999999999998
        (0.35, "35-40"),  # 0.35 / 0.05 is 6.999999999999999
        (0.6999999, "65-70"),
        (0.7, "70-75"),
        (0.95, "95-100"),
        (1.0, "95-100"),
    ],
)
def test_bucket_edges(distance: float, expected: str) -> None:
    assert workloads.bucket(distance) == expected


@given(st.integers(1, 20_000), st.data())
def test_bucket_of_a_quotient_is_the_exact_one(length: int, data: st.DataObject) -> None:
    edits = data.draw(st.integers(0, length))
    assert workloads.bucket_index(edits / length) == min(19, 20 * edits // length)


@pytest.mark.parametrize("distance", [-0.01, 1.01, float("nan"), float("inf")])
def test_bucket_refuses_what_is_no_distance(distance: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        workloads.bucket(distance)


def test_labels_are_in_order() -> None:
    assert len(workloads.BUCKETS) == 20
    assert workloads.BUCKETS[:2] == ("0-5", "5-10")
    assert workloads.BUCKETS[-1] == "95-100"


def test_real_commits_land_in_their_recorded_buckets(shared_data) -> None:
    rows = list(workloads.read_rows(shared_data / "real_commits" / "single_file_commits.jsonl"))
    assert len(rows) == 164
    for row in rows:
        distance = workloads.edit_distance(row.values["before"], row.values["after"])
        assert distance == pytest.approx(row.values["norm_distance"], abs=1e-4)
        assert workloads.bucket(distance) == row.values["bucket"], row.values["id"]


def test_wider_buckets_keep_left_closed_edges() -> None:
    labels = [workloads.bucket(d, width=0.1) for d in (0.0, 0.1, 0.3, 0.69999, 0.7, 1.0)]
    assert labels == ["0-10", "10-20", "30-40", "60-70", "70-80", "90-100"]


@pytest.mark.parametrize("width", [0.0, -0.05, 0.03, 0.055, 1.5])
def test_width_that_does_not_divide_the_range_is_refused(width: float) -> None:
    with pytest.raises(ValueError, match="width"):
        workloads.bucket(0.5, width=width)

"""The n-gram scan kernel against hybrid_spark.reference.scan."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_spark import reference
from hybrid_spark.kernels import NgramScanOutput, ngram_scan
from hybrid_spark.kernels.ngram_scan import api

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RESULTS = ("tokens", "num_tokens", "match_length", "agreement", "copy_length")


def batch_of(contexts, *, max_len=None, padding=None):
    """Rows of token ids; beyond its length a row repeats itself, so that reading on would find matches."""
    max_len = max_len or max([1, *(len(context) for context in contexts)])
    token_ids = torch.empty((len(contexts), max_len), dtype=torch.int32)
    for row, context in zip(token_ids, contexts, strict=True):
        row[:] = torch.from_numpy(np.resize(np.array(context or [1]), max_len))
        if padding is not None:
            row[len(context) :] = padding
    lengths = torch.tensor([len(context) for context in contexts], dtype=torch.int32)
    return token_ids.to(DEVICE), lengths.to(DEVICE)


def poisoned(num_rows, max_len, **options):
    out = NgramScanOutput.allocate(num_rows, max_len, DEVICE, **options)
    for name in (*RESULTS, "block_scores"):
        getattr(out, name).fill_(0x0F0F0F0F)
    return out


def expected_of(contexts, **limits):
    """The reference's results in the kernel's layout."""
    max_draft = limits.get("max_draft", 15)
    matches = [reference.scan(context, **limits) for context in contexts]
    tokens = torch.zeros((len(contexts), max_draft), dtype=torch.int32)
    for row, match in zip(tokens, matches, strict=True):
        row[: len(match.tokens)] = torch.from_numpy(match.tokens)
    vectors = [
        torch.tensor(values, dtype=torch.int32)
        for values in (
            [len(match.tokens) for match in matches],
            [match.match_length for match in matches],
            [match.agreement for match in matches],
            [match.copy_length for match in matches],
        )
    ]
    return dict(zip(RESULTS, [tokens, *vectors], strict=True))


def assert_equal(actual, expected):
    for name in RESULTS:
        value = getattr(actual, name).cpu()
        assert value.dtype == torch.int32
        assert torch.equal(value, expected[name]), f"{name}: got {value.tolist()}, expected {expected[name].tolist()}"


def check(contexts, *, max_len=None, padding=None, block_size=None, **limits):
    token_ids, lengths = batch_of(contexts, max_len=max_len, padding=padding)
    out = poisoned(len(contexts), token_ids.shape[1], block_size=block_size, max_draft=limits.get("max_draft", 15))
    result = ngram_scan(token_ids, lengths, out=out, **limits)
    assert result is out
    assert_equal(result, expected_of(contexts, **limits))
    return result


def numbers(first, count):
    return list(range(first, first + count))


SUFFIX = [1, 2, 3, 4, 5]
ADVERSARIAL = {
    "empty": [],
    "one-token": [7],
    "four-equal-tokens": [7] * 4,
    "five-equal-tokens": [7] * 5,
    "six-equal-tokens": [7] * 6,
    "all-equal": [7] * 400,
    "period-2": [1, 2] * 150,
    "period-5": SUFFIX * 40,
    "period-17": numbers(1, 17) * 9 + numbers(1, 11),
    "no-repeat": numbers(0, 300),
    "suffix-of-four": [*SUFFIX[1:], 9, *SUFFIX[1:]],
    "match-at-the-very-start": [*SUFFIX, *numbers(50, 90), *SUFFIX],
    "match-at-the-very-end": [*numbers(50, 90), *SUFFIX, 9, *SUFFIX],
    "overlapping-at-the-end": [*numbers(50, 90), *[3] * 7],
    "longer-but-older": [0, *SUFFIX, 60, *numbers(90, 30), *SUFFIX, 61, 62, 0, *SUFFIX],
    "disagreeing-runner-up": [*SUFFIX, 60, *numbers(90, 30), *SUFFIX, 61, *numbers(190, 30), *SUFFIX],
    "agreeing-runner-up": [*SUFFIX, 60, *numbers(90, 30), *SUFFIX, 60, *numbers(190, 30), *SUFFIX],
    "copy-of-255": [9, *numbers(100, 255), 8, *numbers(100, 255)],
    "copy-of-256": [9, *numbers(100, 256), 8, *numbers(100, 256)],
    "copy-of-300": [9, *numbers(100, 300), 8, *numbers(100, 300)],
    "recent-copy-of-16-over-20": [*numbers(1, 20), 60, *numbers(5, 16), 61, *numbers(1, 20)],
    "token-id-zero": [0] * 12 + [1] + [0] * 9,
    "token-ids-of-the-padding": [-1] * 3 + [2] + [-1] * 6,
    "largest-token-ids": [2**31 - 1] * 9,
}


@pytest.mark.parametrize("context", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_adversarial_context(context):
    check([context], max_len=700, block_size=128)


@pytest.mark.parametrize("block_size", [16, 64, 1024])
def test_adversarial_contexts_in_one_batch(block_size):
    check(list(ADVERSARIAL.values()), block_size=block_size)


@pytest.mark.parametrize("rows_per_program", [1, 4])
def test_rows_shared_out_among_programs(monkeypatch, rows_per_program):
    monkeypatch.setattr(api, "_rows_per_program", lambda num_rows, block_size: rows_per_program)
    contexts = list(ADVERSARIAL.values())
    check([contexts[9], *contexts[12:22]], block_size=512)  # 11 rows: the last program of 4 has one to spare


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 8, 40])
def test_random_contexts_of_a_small_vocabulary(vocabulary):
    rng = np.random.default_rng(vocabulary)
    contexts = [rng.integers(0, vocabulary, rng.integers(0, 500)).tolist() for _ in range(64)]
    result = check(contexts)
    if vocabulary <= 3:
        assert (result.match_length > 0).float().mean() > 0.5  # the cases are not all empty


def test_random_edits_of_a_text():
    rng = np.random.default_rng(0)
    contexts = []
    for _ in range(48):
        text = rng.integers(0, 5000, rng.integers(30, 300))
        edited = np.where(rng.random(len(text)) < 0.03, rng.integers(0, 5000, len(text)), text)
        contexts.append([*text.tolist(), *edited[: rng.integers(1, len(edited))].tolist()])
    result = check(contexts)
    assert len(result.match_length.unique()) > 5
    assert (result.copy_length > 15).any()


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33, 63, 64, 65, 100])
def test_match_around_block_boundaries(length):
    filler = numbers(100, 80)
    contexts = [[*filler[:gap], *SUFFIX, *filler[gap:], *filler][: length - 5] + SUFFIX for gap in range(40)]
    check(contexts, block_size=16)


def test_runner_up_in_the_winners_block_and_in_another():
    near = [*numbers(100, 20), *SUFFIX, 60, *SUFFIX, 61, *SUFFIX]
    far = [*SUFFIX, 60, *numbers(100, 40), *SUFFIX, 61, *SUFFIX]
    result = check([near, far], block_size=16)
    assert result.agreement.tolist() == [0, 0]


@settings(deadline=None, max_examples=40)
@given(
    contexts=st.lists(st.lists(st.integers(0, 2), max_size=70), min_size=1, max_size=5),
    padding=st.sampled_from([None, -1, 0, 1]),
    block_size=st.sampled_from([16, 32, 128]),
)
def test_equals_reference(contexts, padding, block_size):
    check(contexts, padding=padding, block_size=block_size)


@pytest.mark.parametrize(
    "limits",
    [
        {"min_match": 1, "max_match": 1},
        {"min_match": 2, "max_match": 4, "max_draft": 3, "max_copy": 6},
        {"max_match": 20, "max_copy": 20},
        {"max_copy": 100},
        {"max_draft": 1},
        {"max_draft": 31},
    ],
    ids=str,
)
def test_other_limits(limits):
    check(list(ADVERSARIAL.values()), block_size=64, **limits)


@pytest.mark.parametrize("padding", [None, -1, 0, 7], ids=["repeats-the-row", "minus-one", "zero", "a-token"])
def test_tokens_beyond_the_length_do_not_count(padding):
    check([[7] * 20, [*SUFFIX, *numbers(50, 20), *SUFFIX], [0] * 3, []], max_len=333, padding=padding)


def test_full_row_next_to_another_row_stays_within_it():
    check([[7] * 64, [7] * 64, [7] * 64], max_len=64, block_size=64)


def test_strided_rows():
    contexts = [ADVERSARIAL["copy-of-300"], ADVERSARIAL["period-5"], [7] * 50]
    token_ids, lengths = batch_of(contexts, max_len=640)
    wide = torch.full((3, 1001), 7, dtype=torch.int32, device=DEVICE)
    wide[:, 1:641] = token_ids
    view = wide[:, 1:641]
    assert view.stride(0) == 1001
    assert_equal(ngram_scan(view, lengths, out=poisoned(3, 640)), expected_of(contexts))


def test_row_index_selects_and_repeats_rows():
    contexts = list(ADVERSARIAL.values())
    token_ids, lengths = batch_of(contexts)
    row_index = torch.tensor([9, 0, 17, 9, 3], device=DEVICE)
    result = ngram_scan(token_ids, lengths, row_index=row_index, out=poisoned(5, token_ids.shape[1]))
    assert_equal(result, expected_of([contexts[row] for row in row_index.tolist()]))


def test_inactive_rows_get_no_match_and_their_index_is_not_read():
    contexts = [[7] * 60, [8] * 60, [9] * 60]
    token_ids, lengths = batch_of(contexts)
    row_index = torch.tensor([2, 10**12, 0, -1], device=DEVICE)
    active = torch.tensor([1, 0, 3, 0], dtype=torch.int32, device=DEVICE)
    result = ngram_scan(token_ids, lengths, row_index=row_index, active=active, out=poisoned(4, 60, block_size=16))
    assert_equal(result, expected_of([contexts[2], [], contexts[0], []]))


def test_active_without_row_index():
    contexts = [[7] * 60, [8] * 60]
    token_ids, lengths = batch_of(contexts)
    active = torch.tensor([0, 1], dtype=torch.int32, device=DEVICE)
    assert_equal(ngram_scan(token_ids, lengths, active=active), expected_of([[], contexts[1]]))


def test_buffers_are_reused_without_leftovers():
    token_ids, lengths = batch_of([[7] * 90, SUFFIX * 30, [8] * 90], max_len=160)
    out = poisoned(3, 160, block_size=16)
    ngram_scan(token_ids, lengths, out=out)
    lengths.copy_(torch.tensor([3, 60, 0]))
    assert_equal(ngram_scan(token_ids, lengths, out=out), expected_of([[7] * 3, SUFFIX * 12, []]))


def test_larger_buffers_give_views_and_keep_the_other_rows():
    token_ids, lengths = batch_of([[7] * 90, SUFFIX * 18])
    out = poisoned(5, 200)
    result = ngram_scan(token_ids, lengths, out=out)
    assert_equal(result, expected_of([[7] * 90, SUFFIX * 18]))
    assert result.tokens.data_ptr() == out.tokens.data_ptr()
    assert (out.tokens[2:] == 0x0F0F0F0F).all()
    assert (out.num_tokens[2:] == 0x0F0F0F0F).all()


def test_inputs_are_left_as_they_were():
    token_ids, lengths = batch_of(list(ADVERSARIAL.values()))
    before = token_ids.clone(), lengths.clone()
    ngram_scan(token_ids, lengths)
    assert torch.equal(token_ids, before[0])
    assert torch.equal(lengths, before[1])


def test_empty_batch():
    result = ngram_scan(torch.empty((0, 64), dtype=torch.int32), torch.empty(0, dtype=torch.int32))
    assert result.tokens.shape == (0, 15)


def test_rows_without_room_for_a_token():
    token_ids, lengths = torch.empty((2, 0), dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    assert_equal(ngram_scan(token_ids.to(DEVICE), lengths.to(DEVICE)), expected_of([[], []]))


def test_long_context():
    rng = np.random.default_rng(3)
    text = rng.integers(0, 30_000, 32_768).tolist()
    text[-40:] = text[100:140]
    result = check([text, text[:8192]])
    assert result.copy_length.tolist() == [40, 0]


def test_no_host_synchronisation(monkeypatch):
    token_ids, lengths = batch_of([[7] * 90, SUFFIX * 18])
    row_index = torch.tensor([1, 0], device=DEVICE)
    active = torch.tensor([1, 1], dtype=torch.int32, device=DEVICE)
    out = poisoned(2, 90)
    launches = []
    for name in ("ngram_block_top2_kernel", "ngram_merge_kernel"):
        kernel = getattr(api, name)

        class Recorder:
            def __init__(self, kernel):
                self.kernel = kernel

            def __getitem__(self, grid):
                launches.append(grid)
                return lambda *args, **kwargs: None  # the interpreter itself copies to the host

        monkeypatch.setattr(api, name, Recorder(kernel))
    monkeypatch.setattr(api, "_interpreted", lambda: True)

    def refuse(*args, **kwargs):
        raise AssertionError("host synchronization")

    for method in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "nonzero"):
        monkeypatch.setattr(torch.Tensor, method, refuse)
    monkeypatch.setattr(torch, "empty", refuse)
    ngram_scan(token_ids, lengths, row_index=row_index, active=active, out=out)
    assert len(launches) == 2


VALID = {"token_ids": torch.zeros((2, 30), dtype=torch.int32), "lengths": torch.zeros(2, dtype=torch.int32)}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"token_ids": torch.zeros((2, 30), dtype=torch.int64)}, "token_ids must be int32"),
        ({"token_ids": torch.zeros(30, dtype=torch.int32)}, "token_ids must be int32"),
        ({"token_ids": torch.zeros((30, 2), dtype=torch.int32).T}, "token_ids must be int32"),
        ({"lengths": torch.zeros(2, dtype=torch.int64)}, "lengths must be"),
        ({"lengths": torch.zeros(3, dtype=torch.int32)}, "lengths must be"),
        ({"row_index": torch.zeros(2, dtype=torch.int32)}, "row_index must be"),
        ({"active": torch.zeros(3, dtype=torch.int32)}, "active must be"),
        ({"active": torch.zeros(2, dtype=torch.bool)}, "active must be"),
        ({"min_match": 0}, "got min_match=0"),
        ({"max_match": 4}, "max_match=4"),
        ({"max_copy": 14}, "max_copy=14"),
        ({"max_draft": 0}, "max_draft=0"),
        ({"out": NgramScanOutput.allocate(1, 30, "cpu")}, "out must be allocated for 2 rows of 30 tokens"),
        ({"out": NgramScanOutput.allocate(2, 20, "cpu", block_size=16)}, None),
        ({"out": NgramScanOutput.allocate(2, 16, "cpu", block_size=16)}, "got 2 rows of 16 tokens"),
        ({"out": NgramScanOutput.allocate(2, 30, "cpu", max_draft=7)}, "max_draft=7"),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value),
)
def test_input_that_does_not_fit_is_refused(changed, named):
    if DEVICE == "cuda":
        pytest.skip("the arguments above lie on the CPU")
    if named is None:
        ngram_scan(**VALID | changed)
        return
    with pytest.raises(ValueError, match=named):
        ngram_scan(**VALID | changed)


def test_cpu_tensors_without_the_interpreter_are_refused(monkeypatch):
    monkeypatch.setattr(api, "_interpreted", lambda: False)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        ngram_scan(**VALID)


def test_output_fields_are_the_public_ones():
    names = [field.name for field in dataclasses.fields(NgramScanOutput)]
    assert names[:5] == list(RESULTS)

"""The chain selection kernel against hybrid_spark.reference.select."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hybrid_spark import reference
from hybrid_spark.estimator import Coefficients
from hybrid_spark.kernels import ChainSelection, NgramScanOutput, ngram_scan, pack_coefficients, select_chains
from hybrid_spark.kernels.select_chains import api
from hybrid_spark.policies import Policy

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {"rtol": 1e-5, "atol": 1e-7}  # float32 products of 15 factors against float64
NEAR_TIE = 1e-5
INTEGERS = ("num_tokens", "source", "num_model_tokens")
MODEL = Coefficients.load("Qwen3-4B")
HALF = Coefficients(  # every acceptance is exactly 1/2
    beta=(0.0,) * 15, w_first=0, w_rest=0, delta=0, l_first=0, l_rest=0, kappa_first=0, kappa_rest=0
)


@dataclasses.dataclass
class Request:
    """One request's inputs."""

    draft: list
    confidence: list
    ngram: list = dataclasses.field(default_factory=list)
    match_length: int = 15
    agreement: int = 1
    copy_length: int = 40

    def match(self):
        features = (self.match_length, self.agreement, self.copy_length) if self.ngram else (0, 0, 0)
        names = ("match_length", "agreement", "copy_length")
        return reference.NgramMatch(tokens=np.array(self.ngram, np.int64), **dict(zip(names, features, strict=True)))


def inputs_of(requests, *, token_dtype=torch.int32, width=15):
    """The kernel's tensors; drafts are views of wider rows, and n-gram rows hold garbage past their length."""
    num_draft = len(requests[0].draft)
    drafts = torch.full((len(requests), num_draft + 3), -7, dtype=token_dtype)
    confidence = torch.full((len(requests), num_draft + 2), 9.0)
    ngram = NgramScanOutput.allocate(len(requests), 64, "cpu", max_draft=width)
    ngram.tokens.fill_(12345)
    for row, request in enumerate(requests):
        match = request.match()
        drafts[row, :num_draft] = torch.tensor(request.draft)
        confidence[row, :num_draft] = torch.tensor(request.confidence)
        ngram.tokens[row, : len(request.ngram)] = torch.tensor(request.ngram, dtype=torch.int32)
        ngram.num_tokens[row] = len(request.ngram)
        for name in ("match_length", "agreement", "copy_length"):
            getattr(ngram, name)[row] = getattr(match, name)
    for field in dataclasses.fields(ngram):
        if isinstance(getattr(ngram, field.name), torch.Tensor):
            setattr(ngram, field.name, getattr(ngram, field.name).to(DEVICE))
    return drafts.to(DEVICE)[:, :num_draft], confidence.to(DEVICE)[:, :num_draft], ngram


def poisoned(num_rows, token_dtype=torch.int32):
    out = ChainSelection.allocate(num_rows, DEVICE, token_dtype=token_dtype)
    for name in ("tokens", *INTEGERS):
        getattr(out, name).fill_(0x0F0F0F0F)
    out.survival.fill_(float("nan"))
    return out


def expected_of(policy, requests, coefficients, price):
    """The reference's results in the kernel's layout."""
    chains = [
        reference.select(
            policy,
            request.draft,
            # the kernel's inputs are float32
            np.array(request.confidence, np.float32),
            request.match(),
            reference.acceptance(coefficients, request.match()),
            price,
        )
        for request in requests
    ]
    tokens = np.zeros((len(chains), 15), np.int64)
    survival = np.zeros((len(chains), 15))
    for row, chain in enumerate(chains):
        tokens[row, : len(chain.tokens)] = chain.tokens
        survival[row, : len(chain.tokens)] = chain.survival
    return SimpleNamespace(
        tokens=torch.from_numpy(tokens),
        survival=torch.from_numpy(survival),
        num_tokens=torch.tensor([len(chain.tokens) for chain in chains]),
        source=torch.tensor([int(chain.source == "ngram") for chain in chains]),
        num_model_tokens=torch.tensor([chain.num_model_tokens for chain in chains]),
    )


def check(policy, requests, *, coefficients=MODEL, price=0.2, token_dtype=torch.int32, width=15):
    out = poisoned(len(requests), token_dtype)
    packed = pack_coefficients(coefficients, DEVICE)
    result = select_chains(policy, *inputs_of(requests, token_dtype=token_dtype, width=width), packed, price, out=out)
    assert result is out
    expected = expected_of(policy, requests, coefficients, price)
    assert result.tokens.dtype == token_dtype
    for name in (*INTEGERS, "tokens"):
        actual = getattr(result, name).cpu()
        assert torch.equal(actual.long(), getattr(expected, name)), f"{name}: {actual} != {getattr(expected, name)}"
    torch.testing.assert_close(result.survival.cpu().double(), expected.survival, **TOLERANCE)
    assert torch.all(result.survival[:, 1:] <= result.survival[:, :-1])
    return result


def random_request(rng, num_draft, width, price):
    """A request whose two chains are not within NEAR_TIE of a tie at the price or at 0."""
    while True:
        draft = rng.integers(0, 50_000, num_draft)
        confidence = rng.choice([rng.uniform(0, 1, num_draft), rng.uniform(0.8, 1, num_draft), np.ones(num_draft)])
        ngram = rng.integers(0, 50_000, rng.integers(0, width + 1) if rng.random() < 0.5 else width)
        if rng.random() < 0.4:
            ngram[:num_draft] = draft[: len(ngram)]
        if rng.random() < 0.2:
            ngram = ngram[:0]
        full = rng.random() < 0.5
        length = 15 if full else int(rng.integers(5, 15))
        request = Request(
            draft=draft.tolist(),
            confidence=confidence.astype(np.float32).tolist(),
            ngram=ngram.tolist(),
            match_length=length,
            agreement=int(rng.integers(0, 2)),
            copy_length=int(rng.integers(15, 257)) if full else length,
        )
        survivals = (
            np.cumprod(request.confidence),
            np.cumprod(reference.acceptance(MODEL, request.match())),
        )
        gaps = [np.subtract(*[reference.chain_value(s, p) for s in survivals]) for p in (0.0, price)]
        if min(map(abs, gaps)) > NEAR_TIE or not request.ngram:
            return request


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize(
    ("num_rows", "num_draft", "width"), [(1, 7, 15), (5, 7, 15), (130, 7, 15), (33, 1, 15), (33, 15, 15), (20, 7, 4)]
)
def test_random_batches_agree_with_the_reference(policy, num_rows, num_draft, width):
    price = 0.25
    rng = np.random.default_rng([num_rows, num_draft, width])
    requests = [random_request(rng, num_draft, width, price) for _ in range(num_rows)]
    check(policy, requests, price=price, width=width)


def test_random_batches_contain_every_outcome():
    rng = np.random.default_rng([130, 7, 15])
    requests = [random_request(rng, 7, 15, 0.25) for _ in range(130)]
    contained = [len(r.ngram) > 7 and r.ngram[:7] == r.draft for r in requests]
    plain = expected_of("no_contains", requests, MODEL, 0.25)
    assert sum(contained) > 10
    assert sum(not request.ngram for request in requests) > 10
    assert 20 < int(plain.source.sum()) < 110
    for other in ("proposed", "expected_length", "ngram_first", "extension"):
        assert not torch.equal(expected_of(other, requests, MODEL, 0.25).num_tokens, plain.num_tokens)


@pytest.mark.parametrize("policy", Policy)
def test_int64_drafts_as_vllm_keeps_them(policy):
    rng = np.random.default_rng(3)
    check(policy, [random_request(rng, 7, 15, 0.1) for _ in range(9)], price=0.1, token_dtype=torch.int64)


# Survivals of HALF are 1/2, 1/4, ...: every sum and difference below is exact, ties included.
DRAFT = [1, 2]
CASES = {
    "no-match": Request(DRAFT, [0.5, 0.5]),
    "tie": Request(DRAFT, [0.5, 0.5], [7, 8]),
    "tie-equal-chains": Request(DRAFT, [0.5, 0.5], [1, 2]),
    "worth-more-by-its-tail": Request(DRAFT, [0.5, 0.5], [7, 8, 9]),
    "worth-less": Request(DRAFT, [0.5, 1.0], [7, 8, 9]),
    "contains": Request(DRAFT, [0.25, 1.0], [1, 2, 3, 4]),
    "contains-worth-less": Request(DRAFT, [1.0, 1.0], [1, 2, 3, 4]),
    "prefix-of-draft": Request(DRAFT, [0.5, 0.5], [1]),
    "differs-at-the-end": Request(DRAFT, [1.0, 1.0], [1, 3, 3, 4]),
    "certain-then-impossible": Request(DRAFT, [1.0, 0.0], [7, 8, 9, 10]),
    "no-confidence": Request(DRAFT, [0.0, 0.0], [7]),
    "longest": Request(DRAFT, [0.5, 0.5], [1, 2, *range(50, 63)]),
}


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("price", [0.0, 0.125, 0.25, 1.0])
def test_exact_cases_agree_with_the_reference(policy, price):
    check(policy, list(CASES.values()), coefficients=HALF, price=price)


def test_a_tie_goes_to_the_ngram_chain():
    result = check("proposed", [CASES["tie"]], coefficients=HALF, price=0.125)
    assert result.source.tolist() == [1]
    assert result.survival[0, :3].tolist() == [0.5, 0.25, 0.0]


def test_contains_rule_by_hand():
    # S^g = 1/2, 1/4; S^d = 1/4, 1/4; tail 1/4 * 1/2, * 1/2
    result = check("proposed", [CASES["contains"]], coefficients=HALF)
    assert result.tokens[0, :5].tolist() == [1, 2, 3, 4, 0]
    assert result.survival[0, :5].tolist() == [0.5, 0.25, 0.125, 0.0625, 0.0]
    assert (result.source.item(), result.num_tokens.item(), result.num_model_tokens.item()) == (1, 4, 0)


def test_extension_by_hand():
    result = check("extension", [CASES["contains"]], coefficients=HALF)
    assert result.survival[0, :5].tolist() == [0.25, 0.25, 0.125, 0.0625, 0.0]
    assert (result.source.item(), result.num_tokens.item(), result.num_model_tokens.item()) == (0, 4, 2)


def test_table_8_the_price_drops_a_long_chain_that_expected_length_keeps():
    # one coefficient per position gives any survivals: 9 slots above the price sum to 4.35, 6 below it to 1.52
    offsets = np.arange(9)
    ngram = [*(4.35 / 9 + 0.035 * (4 - offsets)), *(1.52 / 6 + 0.01 * (2.5 - offsets[:6]))]
    dspark = 5.58 / 7 + 0.05 * (3 - offsets[:7])
    acceptance = np.array(ngram) / [1.0, *ngram[:-1]]
    logits = tuple(np.log(acceptance / (1 - acceptance)).tolist())
    coefficients = dataclasses.replace(HALF, beta=logits)
    request = Request(list(range(7)), (dspark / [1.0, *dspark[:-1]]).tolist(), list(range(100, 115)))
    assert check("expected_length", [request], coefficients=coefficients, price=0.309).source.tolist() == [1]
    assert check("proposed", [request], coefficients=coefficients, price=0.309).source.tolist() == [0]


def test_extreme_coefficients_do_not_overflow():
    extreme = dataclasses.replace(HALF, beta=(1e6,) * 3 + (-1e6,) * 12)
    result = check("ngram", [Request([1], [0.5], [5, 6, 7, 8, 9])], coefficients=extreme)
    assert result.survival[0, :6].tolist() == pytest.approx([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], abs=1e-30)


def test_a_confidence_that_is_no_number_is_none():
    inputs = inputs_of([Request(DRAFT, [1.0, float("nan")], [7])])
    assert select_chains("dspark", *inputs, HALF, 0.2).survival[0, :3].tolist() == [1.0, 0.0, 0.0]


def test_scan_output_is_taken_as_it_is():
    contexts = [[1, 2, 3, 4, 5, 60, 61, 1, 2, 3, 4, 5], [1, 2, 3]]
    token_ids = torch.zeros((2, 12), dtype=torch.int32)
    for row, context in zip(token_ids, contexts, strict=True):
        row[: len(context)] = torch.tensor(context)
    lengths = torch.tensor([len(context) for context in contexts], dtype=torch.int32)
    scan = ngram_scan(token_ids.to(DEVICE), lengths.to(DEVICE))
    draft = torch.full((2, 7), 9, dtype=torch.int32, device=DEVICE)
    confidence = torch.full((2, 7), 0.1, device=DEVICE)
    result = select_chains("proposed", draft, confidence, scan, MODEL, 0.3)
    assert result.source.tolist() == [1, 0]
    assert result.tokens[0].tolist() == [60, 61, 1, 2, 3, 4, 5] + [0] * 8
    assert result.tokens[1].tolist() == [9] * 7 + [0] * 8


def test_larger_buffers_are_used_in_part():
    requests = [CASES["tie"], CASES["contains"]]
    out = poisoned(5)
    result = select_chains("proposed", *inputs_of(requests), pack_coefficients(MODEL, DEVICE), 0.1, out=out)
    assert result.tokens.data_ptr() == out.tokens.data_ptr()
    assert result.num_tokens.shape == (2,)
    assert torch.all(out.num_tokens[2:] == 0x0F0F0F0F)
    assert torch.all(out.survival[2:].isnan())


def test_an_empty_batch_launches_nothing():
    drafts = torch.empty((0, 7), dtype=torch.int32, device=DEVICE)
    ngram = NgramScanOutput.allocate(0, 16, DEVICE)
    assert select_chains("proposed", drafts, drafts.float(), ngram, MODEL, 0.1).tokens.shape == (0, 15)


def test_packed_coefficients_have_equation_1s_order():
    packed = pack_coefficients(MODEL, "cpu").tolist()
    scalars = [-0.0893, -0.0001, 1.2455, 1.1998, 0.1322, 2.0118, 1.8333]
    assert packed == pytest.approx([*MODEL.beta, *scalars], rel=1e-6)


def test_a_call_reads_nothing_from_the_device_and_launches_once(monkeypatch):
    arguments = (*inputs_of(list(CASES.values())), pack_coefficients(MODEL, DEVICE), 0.1)
    out = poisoned(len(CASES))
    launches = []

    def forbidden(self, *args, **kwargs):
        raise AssertionError("the host waits for the device")

    class Recorder:
        def __getitem__(self, grid):
            return lambda *args, **kwargs: launches.append((grid, args, kwargs))

    monkeypatch.setattr(api, "select_chains_kernel", Recorder())
    for name in ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__float__", "to", "copy_"):
        monkeypatch.setattr(torch.Tensor, name, forbidden)
    select_chains("proposed", *arguments, out=out)
    monkeypatch.undo()
    assert len(launches) == 1
    _, positional, _ = launches[0]
    assert [value for value in positional if isinstance(value, float)] == [0.1]  # the price, no tensor


def test_kernel_knows_every_policy():
    assert set(api.RULES) == set(Policy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "best"}, "policy must be one of proposed"),
        ({"slot_price": -1.0}, "slot_price"),
        ({"slot_price": float("inf")}, "slot_price"),
        ({"draft_tokens": torch.zeros((2, 16), dtype=torch.int32)}, "draft_tokens must be"),
        ({"draft_tokens": torch.zeros((2, 2))}, "draft_tokens must be"),
        ({"draft_tokens": torch.zeros((2, 2), dtype=torch.int32).T}, "draft_tokens must be"),
        ({"draft_confidence": torch.zeros((2, 3))}, "draft_confidence must be"),
        ({"draft_confidence": torch.zeros((2, 2), dtype=torch.float64)}, "draft_confidence must be"),
        ({"ngram": NgramScanOutput.allocate(3, 16, "cpu")}, "ngram.tokens must be"),
        ({"ngram": NgramScanOutput.allocate(2, 16, "cpu", max_draft=16)}, "ngram.tokens must hold 1 to 15"),
        ({"coefficients": torch.zeros(21)}, "coefficients must be"),
        ({"coefficients": SimpleNamespace(beta=[0.0] * 14)}, "15 intercepts"),
        ({"out": ChainSelection.allocate(1, "cpu")}, "out must be allocated for 2 rows"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_bad_input_is_named(change, message):
    arguments = {
        "policy": "proposed",
        "draft_tokens": torch.zeros((2, 2), dtype=torch.int32),
        "draft_confidence": torch.zeros((2, 2)),
        "ngram": NgramScanOutput.allocate(2, 16, "cpu"),
        "coefficients": torch.zeros(22),
        "slot_price": 0.1,
        "out": None,
    }
    with pytest.raises(ValueError, match=message):
        select_chains(**arguments | change)

from types import SimpleNamespace

import torch

from hybrid_spark.vllm_plugin.valid_length import invalid_rows, link

# Two requests in states 3 and 1, three draft slots each: rows 0 are the last sampled tokens.
STATES = torch.tensor([3, 3, 3, 3, 1, 1, 1, 1])
POSITIONS = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
VALID = torch.tensor([9, 0, 9, 2], dtype=torch.int32)


def test_slots_past_the_valid_length_are_invalid() -> None:
    expected = torch.tensor([False, False, False, True, False, True, True, True])
    assert torch.equal(invalid_rows(VALID, STATES, POSITIONS, None), expected)


def test_vllms_own_invalid_drafts_stay_invalid() -> None:
    theirs = torch.tensor([False, True, False, False, False, False, False, False])
    expected = torch.tensor([False, True, False, True, False, True, True, True])
    assert torch.equal(invalid_rows(VALID, STATES, POSITIONS, theirs), expected)


def test_a_new_request_starts_without_valid_slots() -> None:
    added: list[tuple[str, int]] = []
    states = SimpleNamespace(req_id_to_index={"a": 2}, add_request=lambda req_id, prompt_len: added.append((req_id, 1)))
    valid = VALID.clone()
    link(states, valid)
    states.add_request("a", prompt_len=1)
    assert added == [("a", 1)]
    assert valid.tolist() == [9, 0, 0, 2]

"""Builders of small valid records for tests."""

from harness.schema import Provenance, Record, RequestRecord, Segment, Status, derive


def segment(name: str = "edits 10-15%", **changes: object) -> Segment:
    values: dict[str, object] = {
        "name": name,
        "part": name.split()[0],
        "bucket": name.split()[1].rstrip("%") if " " in name else None,
        "num_prompts": 4,
        "num_completed": 4,
        "num_failed": 0,
        "duration_s": 10.0,
        "num_prompt_tokens": 800,
        "num_output_tokens": 400,
        "num_drafts": 150,
        "num_draft_tokens": 2250,
        "num_accepted_tokens": 240,
    }
    return Segment.model_validate(values | changes)


def record(*segments: Segment, **changes: object) -> Record:
    values: dict[str, object] = {
        "status": Status.done,
        "fidelity": "cpu",
        "sweep": "test",
        "cell_id": "0123456789ab",
        "repeat": 0,
        "arm": "ngram",
        "model": "m",
        "workload": "w",
        "batch_size": 4,
        "temperature": 0.0,
        "config": {"arm": {"name": "ngram", "label": "n-gram"}},
        "overrides": ["+exp=demo"],
        "provenance": Provenance(),
        "segments": list(segments),
        "derived": derive(list(segments)),
    }
    return Record.model_validate(values | changes)


def request(index: int = 0, **changes: object) -> RequestRecord:
    values: dict[str, object] = {
        "segment": "edits 10-15%",
        "index": index,
        "id": f"item-{index}",
        "success": True,
        "num_prompt_tokens": 200,
        "num_output_tokens": 100,
        "text": "text",
    }
    return RequestRecord.model_validate(values | changes)

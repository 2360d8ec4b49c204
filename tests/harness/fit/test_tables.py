import pytest

from harness.fit.tables import without_folders


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/home/ada/my data/question.jsonl sha256:4b6d", "question.jsonl sha256:4b6d"),
        ("data/a.jsonl sha256:01; /tmp/b.jsonl sha256:02", "a.jsonl sha256:01; b.jsonl sha256:02"),
        (r"C:\data\a.jsonl sha256:01", "a.jsonl sha256:01"),
        ("hub:microsoft/NextCoder@0123abc", "hub:microsoft/NextCoder@0123abc"),
        ("sample_chat.jsonl sha256:79ef", "sample_chat.jsonl sha256:79ef"),
    ],
)
def test_sources_keep_the_names_of_files_only(source: str, expected: str) -> None:
    assert without_folders(source) == expected

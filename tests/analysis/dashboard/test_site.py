"""The site's files, without a browser."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from analysis.dashboard import write_dashboard
from harness.__main__ import main
from tests.analysis.dashboard.histories import EVIL, write_history
from tests.analysis.synthetic import demo

VOID = {"meta", "br", "img", "link", "input", "line", "circle", "path", "polygon", "polyline", "rect"}


class _Page(HTMLParser):
    """Checks that tags balance and collects links and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.scripts = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name.startswith("on") for name, _ in attrs)
        assert tag not in ("img", "iframe", "object", "embed")
        self.scripts += tag == "script"
        self.links += [value or "" for name, value in attrs if name == "href" and tag == "a"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _pages(out: Path) -> dict[Path, _Page]:
    return {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(out.rglob("*.html"))}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_history(tmp_path_factory.mktemp("history") / "h", num_sweeps=3, batch_sizes=(4,), evil=EVIL)


@pytest.mark.parametrize("copy_logs", [True, False], ids=["copied", "linked"])
def test_every_link_leads_somewhere(history: Path, tmp_path: Path, copy_logs: bool) -> None:
    out = tmp_path / "site"
    write_dashboard(history, out, copy_logs=copy_logs)
    pages = _pages(out)
    assert len(pages) == 1 + 3
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            file = (path.parent / unquote(target)).resolve() if target else path
            assert file.is_file(), link
            if copy_logs:
                assert out.resolve() in file.parents
            if anchor:
                assert f'id="{anchor}"' in file.read_text(encoding="utf-8")
    logs = [link for page in pages.values() for link in page.links if "server.log" in link]
    assert len(logs) == 3 * 3 * 3
    assert all(link.endswith(".log.txt") is copy_logs for link in logs)


def test_hostile_text_is_escaped_on_every_page(history: Path, tmp_path: Path) -> None:
    write_dashboard(history, tmp_path, title=EVIL)
    for path, page in _pages(tmp_path).items():
        text = path.read_text(encoding="utf-8")
        assert page.scripts == (1 if path.name == "index.html" else 0)
        assert "<script>document" not in text
        assert "&lt;script&gt;document" in text
        assert "{{7*7}}" in text
        assert not re.search(r"https?://", text)


def test_no_page_may_load_anything(history: Path, tmp_path: Path) -> None:
    write_dashboard(history, tmp_path)
    for path in tmp_path.rglob("*.html"):
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', path.read_text(encoding="utf-8"))
        assert policy is not None
        assert policy[1].startswith("default-src 'none'; img-src data:; style-src 'sha256-")


def test_pages_of_cells_that_are_gone_are_removed(history: Path, tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "old.html").write_text("")
    write_dashboard(history, tmp_path)
    assert not (tmp_path / "cells" / "old.html").exists()


def test_command_counts_and_names_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path / "h" / "demo")
    assert main(["dashboard", str(tmp_path / "h"), str(tmp_path / "site")]) == 0
    printed = capsys.readouterr().out
    assert "1 sweep, 2 cells, 0 open regressions." in printed
    assert str(tmp_path / "site" / "index.html") in printed


def test_commit_is_linked_only_when_it_is_one(history: Path, tmp_path: Path) -> None:
    url = "https://example.org/c/{commit}"
    write_dashboard(history, tmp_path, commit_url=url)
    assert f'href="https://example.org/c/{"02" * 20}"' in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "site"], "nowhere: no such folder"),
        (["empty", "site"], "holds no sweep"),
        (["h", "site", "--commit-url", "javascript:alert(1)//{commit}"], "--commit-url must be a web address"),
        (["h", "site", "--threshold", "2"], "--threshold must be a fraction"),
        (["h", "site", "--accept", "H"], "--accept H: no such sweep in h."),
        (["h", "file/site"], "The dashboard cannot be written"),
    ],
)
def test_bad_input_exits_2_with_the_remedy(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    demo(tmp_path / "h", repeats=1)
    assert main(["dashboard", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_corrupt_record_is_named_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = demo(tmp_path / "h").corrupt("0123456789ab", 0)
    assert main(["dashboard", str(tmp_path / "h"), str(tmp_path / "site")]) == 1
    assert str(path) in capsys.readouterr().err
    assert str(path) in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")

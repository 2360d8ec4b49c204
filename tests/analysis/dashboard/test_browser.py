"""The site in a real headless Chromium; screenshots stay in test-artifacts/."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.dashboard import write_dashboard
from tests.analysis.dashboard.histories import EVIL, write_history
from tests.browser import Browser, find_chromium

ARTIFACTS = Path(__file__).resolve().parents[3] / "test-artifacts"
VISIBLE = (
    "[...document.querySelectorAll('tr[data-arm]')].filter(r => r.offsetParent)"
    ".map(r => r.dataset.arm + r.dataset.batch)"
)

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium or Chrome on PATH (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_history(
        tmp_path_factory.mktemp("history") / "h",
        num_sweeps=6,
        lost=lambda sweep, arm, batch_size: 0.93 if sweep >= 4 and arm == "hybrid" and batch_size == 16 else 1.0,
    )
    out = root.parent / "site"
    write_dashboard(root, out)
    return out


@pytest.fixture(scope="module")
def hostile_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_history(tmp_path_factory.mktemp("hostile") / "h", num_sweeps=2, batch_sizes=(4,), evil=EVIL)
    out = root.parent / "site"
    write_dashboard(root, out)
    return out


@pytest.fixture(scope="module")
def shared_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = find_chromium()
    assert executable is not None
    with Browser(executable, tmp_path_factory.mktemp("browser") / "profile") as browser:
        yield browser


@pytest.fixture
def browser(shared_browser: Browser) -> Browser:
    """The page without a memory of the test before."""
    shared_browser.forget()
    shared_browser.messages.clear()
    shared_browser.prefer("light")
    shared_browser.resize(1440, 1000)
    return shared_browser


def _set(browser: Browser, name: str, value: str) -> list[str]:
    browser.run(
        f"(() => {{ const f = document.getElementById('filters').elements['{name}']; f.value = {value!r};"
        " f.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    rows: list[str] = browser.run(VISIBLE)
    return rows


def test_every_page_loads_without_a_console_message_or_a_request(browser: Browser, site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) == 1 + 6
    for page in pages:
        browser.open(page)
        assert browser.run("document.readyState") == "complete"
        assert browser.run("getComputedStyle(document.querySelector('main')).maxWidth") != "none"
    assert browser.messages == []


def test_console_messages_are_noticed(browser: Browser, tmp_path: Path) -> None:
    """The check above can fail."""
    page = tmp_path / "bad.html"
    page.write_text("<script>nothing.here</script><script>console.warn('careful')</script>")
    browser.open(page)
    assert browser.run("1") == 1
    assert len(browser.messages) == 2


def test_planted_regression_is_visible(browser: Browser, site: Path) -> None:
    browser.open(site / "index.html")
    alarms = browser.run("document.querySelector('.alarms').innerText")
    assert "batch size 16, T=0, Hybrid Spark" in alarms
    assert "output throughput worse: -" in alarms
    assert "since 2026-03-05 (vllm 0.33.0, 0404040404)" in alarms
    assert browser.run("document.querySelectorAll('tr.alarm[data-arm]').length") == 1
    assert browser.run("document.querySelectorAll('tr.alarm svg path.worse').length") == 2
    browser.screenshot(ARTIFACTS / "dashboard-overview.png", full=True)
    browser.prefer("dark")
    browser.screenshot(ARTIFACTS / "dashboard-overview-dark.png", full=True)
    browser.open(site / browser.run("document.querySelector('.alarms a').getAttribute('href')"))
    assert browser.run("document.querySelectorAll('svg.chart path.worse').length") == 2
    assert browser.run("document.querySelector('svg.chart').textContent").count("vllm 0.33.0") >= 1
    browser.screenshot(ARTIFACTS / "dashboard-cell.png", full=True)


def test_filters_work_and_are_kept_in_the_address(browser: Browser, site: Path) -> None:
    browser.open(site / "index.html")
    assert len(browser.run(VISIBLE)) == 6
    assert _set(browser, "arm", "n-gram") == ["n-gram4", "n-gram16"]
    assert _set(browser, "batch", "16") == ["n-gram16"]
    assert browser.run("document.getElementById('count').value") == "1 of 6 cells"
    address = browser.run("location.hash")
    browser.open(site / "index.html", "#verdict=alarm")
    assert browser.until(VISIBLE, ["Hybrid Spark16"]) == ["Hybrid Spark16"]
    browser.open(site / "index.html", address)
    assert browser.until(VISIBLE, ["n-gram16"]) == ["n-gram16"]
    browser.run("document.querySelector('#filters [type=reset]').click()")
    assert browser.until(f"{VISIBLE}.length", 6) == 6
    assert _set(browser, "text", "no such cell") == []
    assert browser.run("[...document.querySelectorAll('section[data-fidelity]')].every(s => s.hidden)")


def test_keyboard_alone_is_enough(browser: Browser, site: Path) -> None:
    browser.open(site / "index.html")
    browser.press("/", 191, "/")
    assert browser.run("document.activeElement.name") == "text"
    browser.type("hybrid 16")
    assert browser.until(VISIBLE, ["Hybrid Spark16"]) == ["Hybrid Spark16"]
    browser.press("Escape", 27)
    assert browser.until(f"{VISIBLE}.length", 6) == 6
    browser.open(site / browser.run("document.querySelector('tr.alarm a').getAttribute('href')"))
    reached = set()
    for _ in range(12):
        browser.press("Tab", 9)
        reached.add(browser.run("document.activeElement.getAttribute('href') || ''"))
    assert {"../index.html", "#sweep-0", "#sweep-5"} <= reached
    browser.run("document.querySelector('a[href=\"#sweep-4\"]').focus()")
    browser.press("Enter", 13, "\r")
    assert browser.until("document.querySelector(':target')?.id", "sweep-4") == "sweep-4"


def test_dark_and_light_differ_and_both_can_be_read(browser: Browser, site: Path) -> None:
    browser.open(site / "index.html")
    contrast = """(() => {
      const light = c => { const [r, g, b] = c.match(/[0-9.]+/g).map(v => { v /= 255;
        return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
      const back = light(getComputedStyle(document.body).backgroundColor);
      return ['body', '.soft', '.alarms h2', 'a'].map(s => {
        const l = light(getComputedStyle(document.querySelector(s)).color);
        return (Math.max(l, back) + .05) / (Math.min(l, back) + .05); });
    })()"""
    backgrounds = []
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        assert min(browser.run(contrast)) >= 4.5
        backgrounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert backgrounds[0] != backgrounds[1]


@pytest.mark.parametrize("width", [400, 1440])
def test_page_is_never_wider_than_the_window(browser: Browser, site: Path, width: int) -> None:
    browser.resize(width, 900)
    for page in (site / "index.html", *site.glob("cells/*hybrid*")):
        browser.open(page)
        assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1280, 1440])
def test_overview_needs_no_scrolling_sideways_on_a_desktop(browser: Browser, site: Path, width: int) -> None:
    browser.resize(width, 900)
    browser.open(site / "index.html")
    assert browser.run("[...document.querySelectorAll('.scroll')].every(s => s.scrollWidth <= s.clientWidth + 1)")


def test_phone_shows_verdicts_and_the_newest_points_in_legible_text(browser: Browser, site: Path) -> None:
    browser.resize(390, 800)
    browser.open(site / "index.html")
    assert browser.run("document.querySelector('tr.alarm .badge').getBoundingClientRect().right") < 390
    browser.open(site / browser.run("document.querySelector('.alarms a').getAttribute('href')"))
    size = (
        "(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width"
        " * parseFloat(getComputedStyle(s.querySelector('text')).fontSize))(document.querySelector('svg.chart'))"
    )
    assert browser.run(size) >= 10
    right = "[...document.querySelector('svg.chart').querySelectorAll('{}')].at(-1).getBoundingClientRect().right"
    assert 300 < browser.run(right.format("path.worse")) < 390
    assert 300 < browser.run(right.format(".tick.right")) < 390


def test_headings_say_what_they_head_and_boxes_that_scroll_take_the_focus(browser: Browser, site: Path) -> None:
    for page in (site / "index.html", *site.glob("cells/*hybrid*")):
        browser.open(page)
        assert browser.run("document.querySelectorAll('th:not([scope])').length") == 0
        assert (
            browser.run("document.querySelectorAll('.scroll:not([tabindex=\"0\"][role=region][aria-label])').length")
            == 0
        )


def test_hostile_output_is_text_and_does_not_run(browser: Browser, hostile_site: Path) -> None:
    for page in sorted(hostile_site.rglob("*.html")):
        browser.open(page)
        browser.run("new Promise(r => setTimeout(r, 50))")
        assert browser.run("document.title") != "pwned"
        assert browser.run("document.querySelectorAll('img, main script').length") == 0
    assert "<script>document.title='pwned'</script>" in browser.run("document.querySelector('main').textContent")
    assert browser.messages == []


def test_policy_stops_a_script_that_escaping_missed(browser: Browser, site: Path, tmp_path: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8").replace("<h1>", f"{EVIL}<h1>", 1)
    page = tmp_path / "injected.html"
    page.write_text(text, encoding="utf-8")
    browser.open(page)
    browser.run("new Promise(r => setTimeout(r, 100))")
    assert browser.run("document.title") != "pwned"
    assert any("Content Security Policy" in message for message in browser.messages)

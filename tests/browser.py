"""A real headless Chromium, driven by its DevTools protocol over two pipes: no driver package, no port."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

__all__ = ["Browser", "BrowserError", "find_chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
_TIMEOUT_S = 120.0
_PATIENCE_S = 10.0


class BrowserError(Exception):
    """The browser did not start, answer, or do what was asked."""


def find_chromium() -> str | None:
    """Path of an installed Chromium or Chrome; null without one."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page; every console message and every uncaught error is kept."""

    def __init__(self, executable: str, profile: Path, *, size: tuple[int, int] = (1440, 1000)) -> None:
        self.messages: list[str] = []
        self._ids = itertools.count(1)
        self._events: list[dict[str, Any]] = []
        self._buffer = b""
        read_end, self._to = os.pipe()
        self._from, write_end = os.pipe()
        # the protocol's pipes are 3 and 4 in the browser; kept clear of them here
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (read_end, write_end)]
        os.close(read_end)
        os.close(write_end)
        log = os.open(profile.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        arguments = [
            *(executable, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio"),
            *(f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"),
        ]
        self._pid = os.posix_spawn(
            executable,
            arguments,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, ends[0], 3),
                (os.POSIX_SPAWN_DUP2, ends[1], 4),
            ],
            setpgroup=0,
        )
        for end in (*ends, log):
            os.close(end)
        try:
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            self.resize(*size)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and everything it started."""
        for end in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(end)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the page's session."""
        return self._call(method, session=self._session, **parameters)

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file and wait until it is loaded; of the page that is open already only the fragment changes."""
        self._navigate(path.resolve().as_uri() + fragment)

    def forget(self) -> None:
        """Leave the page, so that the next ``open`` loads it anew."""
        self._navigate("about:blank")

    def _navigate(self, url: str) -> None:
        self._events.clear()
        answer = self.call("Page.navigate", url=url)
        if answer.get("errorText"):
            raise BrowserError(f"{url}: {answer['errorText']}")
        deadline = time.monotonic() + _TIMEOUT_S
        # a new fragment of the same page loads nothing
        while "loaderId" in answer and not any(e["method"] == "Page.loadEventFired" for e in self._events):
            self._events.append(self._receive(deadline))

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def until(self, script: str, value: Any) -> Any:
        """Evaluate ``script`` until it gives ``value``; the last result, also when time is up."""
        deadline = time.monotonic() + _PATIENCE_S
        while (result := self.run(script)) != value and time.monotonic() < deadline:
            time.sleep(0.02)
        return result

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        parameters: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        if text:
            parameters |= {"text": text, "unmodifiedText": text}
        self.call("Input.dispatchKeyEvent", type="keyDown", **parameters)
        self.call("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the page."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefer(self, scheme: str) -> None:
        """Prefer "dark" or "light"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path, *, full: bool = False) -> Path:
        """Write a PNG of the window, or of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
        return path

    def _call(self, method: str, *, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._events.append(answer)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._from, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("the browser ended" if ready else f"no answer within {_TIMEOUT_S:g} s")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        event: dict[str, Any] = json.loads(message)
        self._note(event)
        return event

    def _note(self, event: dict[str, Any]) -> None:
        """Keep what a developer would see in the console, and every request that leaves the disk."""
        parameters = event.get("params", {})
        method = event.get("method")
        if method == "Runtime.exceptionThrown":
            self.messages.append(f"uncaught: {parameters['exceptionDetails']}")
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(f"console.{parameters['type']}: {parameters['args']}")
        elif method == "Log.entryAdded":
            self.messages.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.messages.append(f"request: {url}")

"""A real browser through chromedriver: the WebDriver commands that tests and pictures need."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["CHROME", "DRIVER", "Browser", "browsing"]

DRIVER = shutil.which("chromedriver")
CHROME = shutil.which("chromium") or shutil.which("google-chrome")

SWITCHES = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--window-size=1280,1400"),
]

# The driver listens on loopback, so a proxy must not be used.
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Browser:
    """One browser window."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}/session"
        wanted = {
            "browserName": "chrome",
            "timeouts": {"script": 110_000},
            "goog:chromeOptions": {"args": SWITCHES, "binary": CHROME},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        self.base += "/" + self._post("", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(self.base + path, json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with LOCAL.open(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def _devtools(self, command: str, **parameters: Any) -> Any:
        return self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, path: Path) -> None:
        """Open a page and wait until it is loaded; on a busy machine the command can return before that."""
        address = path.resolve().as_uri()
        self._post("/url", {"url": address})
        self._until(f"location.href === {json.dumps(address)}")

    def reload(self) -> None:
        """Reload the current page, with its current address."""
        self.run("window.before = true")
        self._post("/refresh", {})
        self._until("window.before === undefined")

    def _until(self, there: str) -> None:
        deadline = time.monotonic() + 100
        while not self.run(f"return {there} && document.readyState === 'complete'"):
            if time.monotonic() > deadline:
                raise OSError(f"the page was not there after 100 s: {there}")
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        return self._post("/execute/sync", {"script": script, "args": []})

    def wait_for(self, script: str) -> Any:
        """Run a script that ends by calling its last argument."""
        return self._post("/execute/async", {"script": script, "args": []})

    def prefer(self, scheme: str) -> None:
        """Set the preferred colour scheme: ``light``, ``dark``, or empty for the default."""
        self._devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def resize(self, width: int, height: int) -> None:
        self._devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def picture(self, selector: str) -> bytes:
        """Return a PNG of the matching elements, from the top of the first to the bottom of the last."""
        edges = self.run(
            f"const found = [...document.querySelectorAll({json.dumps(selector)})];"
            "const boxes = found.map((node) => node.getBoundingClientRect());"
            "return [Math.min(...boxes.map((b) => b.left)) + scrollX, Math.min(...boxes.map((b) => b.top)) + scrollY,"
            "Math.max(...boxes.map((b) => b.right)) + scrollX, Math.max(...boxes.map((b) => b.bottom)) + scrollY]"
        )
        left, top, right, bottom = edges
        clip = {"x": left - 12, "y": top - 12, "width": right - left + 24, "height": bottom - top + 24, "scale": 1}
        found = self._devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(found["data"])

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def close(self) -> None:
        request = urllib.request.Request(self.base, method="DELETE")
        LOCAL.open(request, timeout=30).close()


@contextmanager
def browsing() -> Iterator[Browser]:
    """Start chromedriver and a browser, and end both.

    Raises:
        OSError: chromedriver is not installed, or did not start within 10 s.
    """
    if DRIVER is None or CHROME is None:
        raise OSError("needs chromium and chromedriver")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        browser = _first_window(port)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        process.terminate()
        process.wait(120)


def _first_window(port: int) -> Browser:
    for _ in range(1200):
        try:
            return Browser(port)
        except urllib.error.URLError:  # noqa: PERF203 - it is not there yet
            time.sleep(0.1)
    raise OSError("chromedriver did not start")

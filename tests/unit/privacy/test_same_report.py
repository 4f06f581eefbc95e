"""A copy comes to the same report as its original, number for number, and opens where the original does."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.privacy.naming.policy import LEVELS
from rankscope.privacy.redact import redact
from rankscope.records.codec import to_plain
from rankscope.records.manifest import RunManifest
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from rankscope.trace.files.load import load_traces

pytestmark = pytest.mark.data

DATA = Path(__file__).parents[2] / "data"
FEW = ("traces/fsdp2_slow_gpu", "traces/gloo_ddp_input", "traces/graph_host_pause", "runs/ddp_input")
SETS = sorted(f"{kind}/{path.name}" for kind in ("traces", "runs") for path in (DATA / kind).iterdir() if path.is_dir())


def report(folder: Path) -> Any:
    run = RunDir(folder)
    manifest = read_record(RunManifest, run.manifest) if run.manifest.is_file() else None
    return to_plain(analyze(load_traces([folder], cache=False), manifest, hta=True))


def numbers(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf that is no text, and the texts of a fixed choice."""
    if isinstance(value, dict):
        for key, inner in value.items():
            # kernels and versions are keys of some tables, hosts and paths values
            yield from numbers(inner, f"{place}.{key}")
    elif isinstance(value, list):
        yield f"{place}.length", len(value)
        for index, inner in enumerate(value):
            yield from numbers(inner, f"{place}.{index}")
    elif not isinstance(value, str):
        yield place, value


@pytest.mark.data
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FEW else pytest.mark.long) for n in SETS])
def test_a_copy_has_the_numbers_of_its_original(name: str, level: str, tmp_path: Path) -> None:
    if level != "public" and name != FEW[0] and "RANKSCOPE_ALL_LEVELS" not in os.environ:
        pytest.skip("the strictest level on all, each level on one")
    copy = redact(DATA / name, tmp_path / "out" / "copy", LEVELS[level], report=False)
    before, after = report(DATA / name), report(copy.output)
    assert (after["run"].pop("redacted"), before["run"].pop("redacted")) == (level, None)
    for one in (before, after):
        del one["run"]["command"], one["run"]["versions"], one["sources"]
        del one["efficiency"]  # FLOPs follow from the shapes, which are tokens
        for rows in one["hta"].get("kernel_breakdown", {}).values():
            rows.sort(key=lambda row: row["sum (us)"])  # instead of by name
    assert dict(numbers(after)) == dict(numbers(before))
    for part in ("kind", "ranks", "cause", "confidence", "cost_ms_per_step"):
        assert after["verdict"][part] == before["verdict"][part]
    assert [f["kind"] for f in after["findings"]] == [f["kind"] for f in before["findings"]]


@pytest.mark.data
def test_a_copy_is_a_chrome_trace_that_hta_reads_like_its_original(tmp_path: Path) -> None:
    """Perfetto takes any JSON trace whose events have a phase, a time and ids; HTA parses it with its own parser."""
    from hta.trace_analysis import TraceAnalysis

    source = DATA / "traces/ddp_slow_gpu"
    copy = redact(source, tmp_path / "out" / "copy", LEVELS["public"], report=False)
    files = {rank: str(copy.output / f"rank_{rank}.json.gz") for rank in (0, 1)}
    document = json.loads(gzip.decompress(Path(files[0]).read_bytes()))
    events = document["traceEvents"]
    assert {event["ph"] for event in events} <= set("XBEsftiM")
    assert all(isinstance(event["ts"], (int, float)) and event["dur"] >= 0 for event in events if event["ph"] == "X")
    assert all({"id", "cat", "pid", "tid", "ts"} <= event.keys() for event in events if event["ph"] in "sf")
    originals = {rank: str(source / f"rank_{rank}.json.gz") for rank in (0, 1)}
    tables = [
        TraceAnalysis(trace_files=given, trace_dir="").get_temporal_breakdown(visualize=False)
        for given in (files, originals)
    ]
    assert tables[0].equals(tables[1])

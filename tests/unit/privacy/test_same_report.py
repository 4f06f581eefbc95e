"""A copy has the same report as its original, number for number, and opens wherever the original does."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
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
from rankscope.trace.kineto.events import DROPPED_CATEGORIES

pytestmark = pytest.mark.data

DATA = Path(__file__).parents[2] / "data"
FEW = (
    *("traces/gloo_ddp_input", "traces/graph_host_pause", "runs/ddp_input"),
    "cases/06_missing_dur",
)
KINDS = ("traces", "runs", "cases")
SETS = sorted(f"{kind}/{path.name}" for kind in KINDS for path in (DATA / kind).iterdir() if path.is_dir())


@cache
def original(name: str) -> str:
    """The report of a recorded folder, as JSON: three levels of a copy are compared with one."""
    return json.dumps(report(DATA / name))


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
    before, after = json.loads(original(name)), json.loads(json.dumps(report(copy.output)))
    assert (after["run"].pop("redacted"), before["run"].pop("redacted")) == (level, None)
    assert after["run"].pop("redacted_kinds")["shapes"] == "token"
    assert before["run"].pop("redacted_kinds") == {}
    for one in (before, after):
        del one["run"]["command"], one["run"]["versions"], one["sources"]
        del one["efficiency"]  # FLOPs follow from the shapes, which are tokens
        for row in one["kernels"]:
            del row["tflops"], row["gb_s"]  # likewise
        for rows in one["hta"].get("kernel_breakdown", {}).values():
            rows.sort(key=lambda row: row["sum (us)"])  # instead of by name
    assert dict(numbers(after)) == dict(numbers(before))
    for part in ("kind", "ranks", "cause", "confidence", "cost_ms_per_step"):
        assert after["verdict"][part] == before["verdict"][part]
    assert [f["kind"] for f in after["findings"]] == [f["kind"] for f in before["findings"]]


@pytest.mark.data
def test_what_a_policy_file_leaves_out_does_not_change_the_answer(tmp_path: Path) -> None:
    name = "runs/ddp_input"
    policy = dataclasses.replace(LEVELS["public"], shapes="keep", message_sizes="drop")
    copy = redact(DATA / name, tmp_path / "out" / "copy", policy)
    before, after = json.loads(original(name)), json.loads(json.dumps(to_plain(copy.report)))
    for part in ("kind", "ranks", "cause", "cost_ms_per_step"):
        assert after["verdict"][part] == before["verdict"][part]
    assert [f["kind"] for f in after["findings"]] == [f["kind"] for f in before["findings"]]
    assert all(row["bus_gb_s"] and row["megabytes_per_call"] for row in before["groups"])
    assert not any(row["bus_gb_s"] or row["megabytes_per_call"] for row in after["groups"])
    page = (copy.output / "report" / "report.md").read_text()
    assert "left out: sizes of messages and copies, and with them bus bandwidth, device memory" in page
    assert "FLOPs and MFU cannot be told" not in page  # they follow from the shapes, which are kept


def in_perfetto(path: Path) -> Counter[str]:
    """What Perfetto's importer of JSON makes of a trace, by its source (json_trace_tokenizer.cc, json_trace_parser.cc):
    it ends at a time or a duration that is no number, passes over slices without a duration and arrows whose id is
    neither a number nor hexadecimal, and takes ids of processes and threads as 32 bits."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    made: Counter[str] = Counter()
    tracks = set()
    for event in document["traceEvents"]:
        phase, kind = event["ph"], event.get("cat")
        assert isinstance(phase, str)
        assert phase == "M" or isinstance(event["ts"], (int, float))
        assert isinstance(event.get("dur", 0), (int, float))
        if phase in "sft":
            assert isinstance(event["id"], int) or int(event["id"], 16) >= 0
        if phase == "M" and event["name"] in ("thread_name", "process_name"):
            assert event["args"]["name"]
            kind = event["name"]
        if phase == "X" and kind not in DROPPED_CATEGORIES:
            tracks.add(tuple(i if isinstance(i, str) or 0 <= i < 1 << 32 else 0 for i in (event["pid"], event["tid"])))
        made[f"{phase} {kind}"] += 1
    made["tracks"] = len(tracks)
    return made


@pytest.mark.data
@pytest.mark.parametrize("name", ["graph_host_pause", "gloo_fsdp2_pause"])
def test_perfetto_makes_of_a_copy_what_it_makes_of_the_original(name: str, tmp_path: Path) -> None:
    source = DATA / "traces" / name
    copy = redact(source, tmp_path / "out" / "copy", LEVELS["public"], report=False)
    theirs, ours = in_perfetto(source / "rank_0.json.gz"), in_perfetto(copy.output / "rank_0.json.gz")
    kept = {kind for kind in theirs if kind[0] in "Xsft" or kind.endswith("_name")}
    assert ours["tracks"] > 1
    assert len(kept) > 5
    assert {kind: ours[kind] for kind in kept - {"X Trace"}} == {kind: theirs[kind] for kind in kept - {"X Trace"}}


@pytest.mark.data
def test_hta_reads_a_copy_like_its_original(tmp_path: Path) -> None:
    from hta.common.trace import Trace
    from hta.trace_analysis import TraceAnalysis

    source = DATA / "traces/graph_host_pause"
    copy = redact(source, tmp_path / "out" / "copy", LEVELS["public"], report=False)
    files = {rank: str(copy.output / f"rank_{rank}.json.gz") for rank in (0, 1)}
    originals = {rank: str(source / f"rank_{rank}.json.gz") for rank in (0, 1)}
    tables = []
    for given in (files, originals):
        analysis = TraceAnalysis.__new__(TraceAnalysis)  # which would start processes to read two files
        analysis.t = Trace(given, "")
        analysis.t.load_traces(use_multiprocessing=False)
        tables.append(analysis.get_temporal_breakdown(visualize=False))
    assert len(tables[0]) == 2
    assert tables[0].equals(tables[1])

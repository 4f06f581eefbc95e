"""The public Python API, as documented in docs/api.md."""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rankscope
from rankscope import errors
from rankscope.report.formats.json import schema
from rankscope.report.notebook import TABLES

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests" / "data" / "runs" / "ddp_input"


def test_a_run_is_analysed_and_its_report_read_back(tmp_path: Path) -> None:
    report = rankscope.analyze(rankscope.load_traces([str(RUN)], cache=False), rankscope.read_manifest(RUN), hta=False)
    assert (report.verdict.kind, report.verdict.cause) == ("straggler", "input_stall")
    assert report.run.source == "run"
    report.save(tmp_path)
    assert rankscope.read_report(tmp_path).verdict.ranks == report.verdict.ranks
    with pytest.raises(errors.RunDirError, match="does not exist"):
        rankscope.read_report(tmp_path / "nowhere")
    file = tmp_path / "report.json"
    file.write_text(file.read_text().replace('"schema_version": "1.', '"schema_version": "2.'))
    with pytest.raises(errors.RunDirError, match=r"has schema 2\..*, and this rankscope reads 1\."):
        rankscope.read_report(tmp_path)


@pytest.fixture(scope="module")
def report() -> rankscope.Report:
    return rankscope.analyze(RUN, hta=False)


def test_a_path_is_enough(report: rankscope.Report) -> None:
    by_hand = rankscope.analyze(rankscope.load_traces([RUN]), rankscope.read_manifest(RUN), hta=False)
    assert report == by_hand
    assert report.run.source == "run"
    assert pickle.loads(pickle.dumps(report)) == report


def test_questions_are_answered_by_replay(report: rankscope.Report, tmp_path: Path) -> None:
    """Rank 1 waits 60 ms for input in each step; its transfers are short and hidden."""
    assert report.what_if == report.record.what_if
    answer = report.what_if(rank=1)
    assert answer.saves_ms == pytest.approx(60.0, abs=3.0)
    assert answer.step_then_ms == report.verdict.step_ms - answer.saves_ms
    assert answer.saves_ms == pytest.approx(sum(answer.by_step_ms) / 6)
    assert report.what_if(network=math.inf).saves_ms == pytest.approx(report.what_if["ideal_network"])
    assert report.what_if(scale={"aten::no_such": 0.0}).saves_ms == pytest.approx(0.0, abs=1e-6)
    for wrong in ({"rank": 9}, {"network": 0.0}, {"scale": {"aten::mm": -1.0}}):
        with pytest.raises(ValueError, match=r"rank 9|above 0"):
            report.what_if(**wrong)
    report.save(tmp_path)
    with pytest.raises(errors.AnalysisError, match="read from a file"):
        rankscope.read_report(tmp_path).what_if(rank=1)


def test_lanes_of_a_step_show_who_waits_for_whom(report: rankscope.Report, tmp_path: Path) -> None:
    """Rank 1 waits 60 ms for input in each step, and rank 0 for rank 1."""
    figure = report.plot.step(ranks=[1, 0])
    bars = {bar.name: bar for bar in figure.data}
    assert set(bars["Input"].y) >= {"1 host"}
    late = [ms for ms, lane in zip(bars["Input"].x, bars["Input"].y, strict=True) if lane == "1 host"]
    assert sum(late) > 50
    waited = [
        ms
        for ms, lane in zip(bars["Waiting for peers"].x, bars["Waiting for peers"].y, strict=True)
        if lane == "0 communication"
    ]
    assert sum(waited) > 40
    assert "wait for rank 1" in bars["Waiting for peers"].hovertext
    step = report.steps[0].step
    assert report.plot.step(step).layout.title.text.startswith(f"Step {step}, ")
    for wrong in ({"step": 999}, {"ranks": [0, 9]}):
        with pytest.raises(errors.AnalysisError, match=r"step 999 was not recorded|rank 9 did not record"):
            report.plot.step(**wrong)
    with pytest.raises(errors.AnalysisError, match="read from a file"):
        rankscope.Report(report.record).plot.step(ranks=[0])


def test_what_a_console_shows(report: rankscope.Report) -> None:
    assert re.fullmatch(
        r"saves (?:59|6\d)(?:\.\d)? ± \d+(\.\d+)? ms of a step, which then takes [\d.]+ ms",
        repr(report.what_if(rank=1)),
    )
    assert repr(report.plot).startswith("figures of the report: .breakdown(), ")
    assert {"verdict", "ranks", "regions", "plot", "saves"} <= set(dir(report))
    with pytest.raises(AttributeError, match=r"^Report has no 'verdikt'; did you mean 'verdict'\?$"):
        report.verdikt  # noqa: B018
    with pytest.raises(ValueError, match=r"'late' is no column of the steps; there are attempt, window, step, rank"):
        report.plot.map("late")


def test_tables_are_frames_of_the_rows_of_the_report(report: rankscope.Report) -> None:
    ranks = report.table("ranks")
    assert ranks.index.tolist() == [rank.rank for rank in report.ranks]
    assert ranks.step_ms_median.tolist() == [rank.step_ms["median"] for rank in report.ranks]
    for name in TABLES:
        assert len(report.table(name)) == len(getattr(report, name)), name
    assert "peak_allocated_bytes" in report.table("memory")  # which has no row
    with pytest.raises(KeyError, match="there are ranks, idle"):
        report.table("rank")


def test_what_a_notebook_shows_asks_for_nothing_and_runs_nothing(report: rankscope.Report) -> None:
    record = copy.deepcopy(report.record)
    record.verdict.sentence = "<script>alert(1)</script>"
    shown = rankscope.Report(record)._repr_mimebundle_()
    assert repr(report).startswith(f"Verdict  {report.verdict.sentence}")
    assert "<script" not in shown["text/html"]
    assert "&lt;script" in shown["text/html"]
    assert "http" not in shown["text/html"]
    assert len(shown["text/html"]) < 60_000
    assert report.to_markdown().startswith("**Verdict:**")


def test_the_page_in_a_frame_cannot_reach_the_notebook(report: rankscope.Report) -> None:
    frame = report.show(height=500)._repr_html_()
    assert frame.startswith("<iframe srcdoc='&lt;!doctype html&gt;")
    assert "sandbox='allow-scripts'" in frame
    assert "height:500px" in frame
    assert frame.count("'") == 2 * 4  # the page's own quotes are escaped


def test_a_report_is_saved_in_the_formats_that_are_asked_for(report: rankscope.Report, tmp_path: Path) -> None:
    assert set(report.save(tmp_path / "page", formats=["html"])) == {"html"}
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["report.html"]
    with pytest.raises(ValueError, match="'pdf' is no format of a report"):
        report.save(tmp_path / "other", formats=["pdf"])


def test_numbers_for_a_tracker(report: rankscope.Report) -> None:
    scalars = report.scalars()
    assert scalars["rankscope/step_ms"] == report.verdict.step_ms
    shares = [rank.compute_pct for rank in report.ranks]
    assert scalars["rankscope/compute_pct"] == pytest.approx(sum(shares) / len(shares))
    assert all(type(value) is float for value in scalars.values())


def test_all_events_are_one_arrow_table(tmp_path: Path) -> None:
    events = rankscope.load(RUN, cache=False)
    traces = rankscope.load_traces([RUN], cache=False).traces
    assert events.num_rows == sum(len(trace.events) for trace in traces)
    assert events.column_names[:4] == ["attempt", "window", "rank", "name"]
    frame = events.to_pandas()
    for trace in traces:
        own = frame[(frame["rank"] == trace.rank) & (frame["window"] == trace.window)]
        assert own["duration"].tolist() == trace.events.duration.tolist()
        assert own["name"].tolist() == [trace.strings[code] for code in trace.events.name]
    (tmp_path / "rank_0.json").write_text("{")
    with pytest.raises(errors.AnalysisError, match=r"rank_0\.json"):
        rankscope.load(tmp_path)


@pytest.mark.parametrize("name", ["report", "run"])
def test_the_schema_holds_for_what_is_written(name: str, report: rankscope.Report, monkeypatch: Any) -> None:
    monkeypatch.setitem(
        sys.modules, "rfc3987_syntax", None
    )  # of formats, which takes seconds to load where it is there
    import jsonschema

    made = schema(name)
    jsonschema.Draft202012Validator.check_schema(made)
    validator = jsonschema.Draft202012Validator(made)
    document = report.to_dict() if name == "report" else json.loads((RUN / "run.json").read_text())
    validator.validate(document)
    validator.validate({**document, "of a later version": 1})
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**document, "schema_version" if name == "report" else "windows": {}})


@pytest.mark.process
def test_nothing_is_loaded_before_it_is_used() -> None:
    code = (
        "import sys, rankscope; assert 'numpy' not in sys.modules; rankscope.read_report; assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    with pytest.raises(AttributeError, match="no attribute 'secrets'"):
        rankscope.secrets  # noqa: B018


def test_the_documentation_names_all_of_it() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`rankscope\.(\w+)\(", text))
    assert named == set(rankscope.__all__) - {"__version__", "errors"}
    assert dir(rankscope) == sorted(rankscope.__all__)

"""How a job without a usable trace ended."""

from __future__ import annotations

import pytest

from rankscope.analysis.evidence.ending import how_it_ended
from rankscope.records.manifest import RunManifest
from rankscope.records.report import SourceFile


@pytest.mark.parametrize(("status", "traces"), [("ignored", False), ("unusable", True)])
def test_a_file_that_is_no_trace_does_not_hide_how_the_job_ended(status: str, traces: bool) -> None:
    manifest = RunManifest(
        run_id="run_0001", argv=[], config={}, versions={}, hosts=[], world_size=None, attempts=0, windows=[], lives=[],
        exit_code=2, notes=["no rank reached `import torch`"],
    )  # fmt: skip
    sources = [SourceFile(path="run/notes.json", status=status, reason="JSON, but not a profiler trace")]
    ended = how_it_ended(manifest, sources)
    assert ended is not None
    assert (ended.exit_code, ended.steps, ended.traces) == (2, 0, traces)
    assert how_it_ended(None, sources) is None

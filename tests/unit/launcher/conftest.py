"""A node helper that starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankscope.records.manifest import RunManifest
from rankscope.rundir.claim import NodeClaim
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


class FakeHelper:
    """Stands for ``rankscope.launcher.node_helper.NodeHelper``; tells what it was asked."""

    def __init__(self) -> None:
        self.started: tuple[Any, ...] | None = None
        self.finished: int | None = None
        self.manifest: RunManifest | None = None
        self.start_error: Exception | None = None
        self.finish_error: BaseException | None = None

    def start(
        self, run_dir: RunDir, spool: Spool, claim: NodeClaim, argv: list[str], config: dict[str, Any]
    ) -> FakeHelper:
        if self.start_error is not None:
            raise self.start_error
        self.started = (run_dir, spool, claim, argv, config)
        return self

    def finish(self, exit_code: int, *, progress: Any, patience_s: float) -> RunManifest | None:
        self.finished = exit_code
        progress("gathering")
        if self.finish_error is not None:
            raise self.finish_error
        return self.manifest


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHelper:
    fake = FakeHelper()
    monkeypatch.setattr("rankscope.launcher.node_helper.NodeHelper", fake)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    return fake


@pytest.fixture
def manifest() -> RunManifest:
    return RunManifest(
        run_id="r",
        argv=[],
        config={},
        versions={},
        hosts=[],
        world_size=2,
        attempts=1,
        exit_code=0,
        windows=[],
        lives=[],
    )

"""The launches of one door, with and without rankscope, and the files that they left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from doors.doors import RANKSCOPE, Door
from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport
from rankscope.rundir.layout import RunDir
from support.ending import end
from support.launching import environment, flags_of, free_port
from support.node import until

__all__ = ["ENDS_WITHIN_S", "Launches"]

SETTINGS = [f"schedule.{key}" for key in ("skip_first=2", "wait=1", "warmup=1", "active=5")] + ["analysis.hta=false"]
ENDS_WITHIN_S = 800.0
"""For a test that fails, and not a measure of anything: a launch with its report has taken five minutes at load 25."""
MARK = "DOOR_LAUNCH"
"""A variable of all processes of a launch, by which those are found that a launcher has left."""


class Launches:
    """One door's launches, each made when it is first asked for.

    Args:
        door: how the ranks are started.
        folder: for all that they leave.
        ranks: how many.
        env: more variables of theirs.
    """

    def __init__(self, door: Door, folder: Path, *, ranks: int = 2, env: dict[str, str] | None = None) -> None:
        self.door, self.folder, self.ranks = door, folder, ranks
        self._env = env or {}
        self._done: dict[tuple[str, bool], int | None] = {}

    def run_dir(self, mode: str) -> RunDir:
        return RunDir(self.folder / f"RUN_{mode}")

    def start(self, mode: str, recorded: bool) -> subprocess.Popen[str]:
        door, run = self.door, self.run_dir(mode).path
        ours = [*RANKSCOPE, "exec", *flags_of(f"run.dir={run}", *SETTINGS, *door.settings)] if recorded else []
        words = door.words(ours, str(self.folder / f"{mode}_{recorded}"), mode, str(free_port()), ranks=self.ranks)
        if door.by_run and recorded:
            words = [*RANKSCOPE, "run", *flags_of(f"run.dir={run}", *SETTINGS), *words[3:]]
        env = environment() | door.env | self._env | {MARK: str(self.folder), "DOORS_RANKS": str(self.ranks)}
        env |= {"ATTACH_TO": str(run)} if door.attaches and recorded else {}
        with (self.folder / f"{mode}_{recorded}.log").open("w") as log:
            return subprocess.Popen(words, cwd=self.folder, env=env, stdout=log, stderr=log, text=True)

    def code(self, mode: str, recorded: bool) -> int | None:
        key = mode, recorded
        if key not in self._done:
            process = self.start(mode, recorded)
            try:
                self._done[key] = process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._done[key] = None
                self.end_all()
            finally:
                end(process)
        return self._done[key]

    def end_all(self) -> None:
        """Whatever still runs of these launches, whoever its parent is."""
        mark = f"{MARK}={self.folder}".encode()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in environ.read_bytes().split(b"\0"):
                    os.kill(int(environ.parent.name), signal.SIGKILL)

    def said(self, mode: str, recorded: bool) -> str:
        return (self.folder / f"{mode}_{recorded}.log").read_text(errors="replace")[-6000:]

    def manifest(self, mode: str = "ok") -> RunManifest:
        code = self.code(mode, True)
        assert code == 0 if mode == "ok" else code is not None, self.said(mode, True)
        run = self.run_dir(mode)
        until(run.manifest.exists, ENDS_WITHIN_S)
        return from_json(RunManifest, run.manifest.read_bytes())

    def report(self) -> ClusterReport:
        self.manifest()
        path = self.run_dir("ok").report / "report.json"
        until(path.exists, ENDS_WITHIN_S)
        return from_json(ClusterReport, path.read_bytes())

    def left(self, recorded: bool) -> list[str]:
        """What each rank has left of its parameters and its environment."""
        assert self.code("ok", recorded) == 0, self.said("ok", recorded)
        return [(self.folder / f"ok_{recorded}.{rank}").read_text() for rank in range(self.ranks)]

"""Files of a sweep: its plan, the runs that have ended, and a lock, so that only one process works on it."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rankscope.errors import ConfigError, ForeignFileError, RunDirError
from rankscope.records.codec import to_json
from rankscope.records.secrets import mask_arguments
from rankscope.records.sweep import SweepJob, SweepPlan
from rankscope.rundir.files import rewrite, write_new
from rankscope.rundir.record_files import RUN_BYTES, read_record

__all__ = ["SweepDir"]


class SweepDir:
    """The folder of one sweep, which contains these files and the run directory of each run."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._plan = self.path / "sweep.json"

    @property
    def begun(self) -> bool:
        """Return whether there is a sweep."""
        return self._plan.exists()

    def begin(self, plan: SweepPlan, *, shown: str) -> SweepPlan:
        """Write the plan, or continue with the existing one.

        Args:
            plan: of the command line.
            shown: the folder as the user writes it.

        Raises:
            ConfigError: another sweep was begun here.
            RunDirError: the folder cannot be used.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "jobs").mkdir(exist_ok=True)
            if self.begun:
                before = self.plan()
                if (before.words, before.settings) != (plan.words, shown_to_others(plan).settings):
                    raise ConfigError(
                        f"{shown} holds another sweep: rankscope sweep {' '.join(before.words)}; "
                        "give the same words to go on with it, or another --dir"
                    )
                plan.repeats = max(plan.repeats, before.repeats)
            elif any(entry.name not in ("jobs", "lock") for entry in self.path.iterdir()):
                raise RunDirError(f"{shown} is not empty and holds no sweep; name a new folder with --dir")
            rewrite(self._plan, to_json(shown_to_others(plan)))
        except OSError as error:
            raise RunDirError(f"{shown} cannot be used ({error}); name another folder with --dir") from error
        return plan

    def plan(self) -> SweepPlan:
        """Return the plan.

        Raises:
            ForeignFileError: there is no sweep, or its file is corrupt.
        """
        return read_record(SweepPlan, self._plan, RUN_BYTES)

    def ended(self, notes: list[str] | None = None) -> dict[tuple[int, int], SweepJob]:
        """Return the runs that have ended, by setting and repeat; of a repeated run the last."""
        found: dict[tuple[int, int], SweepJob] = {}
        for path in sorted((self.path / "jobs").glob("*.json")):
            try:
                job = read_record(SweepJob, path)
            except ForeignFileError as error:
                if notes is not None:
                    notes.append(f"a run is not counted: {error}")
                continue
            found[job.setting, job.repeat] = job
        return found

    def note(self, job: SweepJob) -> None:
        """Note that a run has ended."""
        write_new(self.path / "jobs" / f"{job.folder}.json", to_json(job))

    def run(self, setting: int, repeat: int) -> Path:
        """Return an unused run directory."""
        name, number = f"setting_{setting:03d}_run_{repeat:02d}", 1
        while (free := self.path / (name if number == 1 else f"{name}_try_{number}")).exists() or self.log(
            free
        ).exists():
            number += 1
        return free

    def log(self, run: Path) -> Path:
        """Return the path of the log with a run's output."""
        return self.path / f"{run.name}.log"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the sweep.

        Raises:
            RunDirError: another process works on it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunDirError(f"another process works on {self.path}; wait for it, or stop it") from None
            except OSError:  # a file system without locks
                pass
            yield


def shown_to_others(plan: SweepPlan) -> SweepPlan:
    """Return the plan as it is stored: values that look like secrets are masked, as in the manifest of a run."""
    return replace(plan, settings=[replace(own, overrides=mask_arguments(own.overrides)) for own in plan.settings])

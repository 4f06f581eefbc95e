"""Run jobs in sequence within a time limit: bare, to measure the cost of a fault, and recorded, for the verdict."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs import FAULT_FROM, Job, Judgement, Measured, judge, label, measure, score, trim
from launching import RANKSCOPE, TORCHRUN, launch
from table import HEAD, facts, row, show

from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport
from rankscope.rundir.layout import RunDir

HERE = Path(__file__).parent
GUESS_S = 30.0
"""Assumed duration of a launch before the first has ended, seconds."""
LONGEST_S = 120.0
"""Duration after which a launch is considered to hang, seconds."""
STEPS = {"inline": 24}
"""Number of steps of a recorded job, beyond its window."""
MOST_TRACES = 14_000_000
"""Largest amount of trimmed traces that are kept, bytes."""


def arguments(description: str | None, *, ranks: int, capture: str, budget_s: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, required=True, help="results.json, traces.tar and its labels.json are written there"
    )
    parser.add_argument("--ranks", type=int, default=ranks)
    parser.add_argument(
        "--budget-s", type=float, default=budget_s, help="launches that do not fit are skipped and listed"
    )
    parser.add_argument("--capture", choices=tuple(STEPS), default=capture)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl", help="gloo: on the CPU")
    parser.add_argument("--tiny", action="store_true", help="models for the CPU")
    parser.add_argument("--only", default="", metavar="NAME,...", help="jobs whose name has one of these parts")
    return parser


def captures(asked: str) -> list[str]:
    """The capture backends to record with."""
    return [asked]


@dataclass
class Harness:
    args: argparse.Namespace
    began: float = field(default_factory=time.monotonic)
    longest: dict[str, float] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    judged: dict[str, list[tuple[Job, Judgement]]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    kept: int = 0

    def run(self, launches: Sequence[tuple[Job, str]]) -> int:
        """Each is (job, "bare" or a capture backend), in order of worth. Returns 1 if something was wrong or lost."""
        self.args.out.mkdir(parents=True, exist_ok=True)
        row(*HEAD)
        with tarfile.open(self.args.out / "traces.tar", "w") as traces:
            for job, how in launches:
                if self.args.only and not any(part in job.name for part in self.args.only.split(",")):
                    continue
                left = self.args.budget_s - (time.monotonic() - self.began)
                if left < self.longest.get(how, max(self.longest.values(), default=GUESS_S)):
                    self.skipped.append(f"{job.name} {how}: no time left")
                    continue
                began = time.monotonic()
                self._one(job, how, min(left, LONGEST_S), traces)
                self.longest[how] = max(min(time.monotonic() - began, LONGEST_S / 2), self.longest.get(how, 0.0))
                self._save()
        for how, judged in self.judged.items():
            print(f"\n{how}: " + "; ".join(f"{name} {a} of {b}" for name, (a, b) in score(judged).items()))
        for line in self.skipped:
            print(f"left out: {line}")
        return int(bool(self.skipped) or any(not r.get("right") for r in self.rows))

    def _one(self, job: Job, how: str, seconds: float, traces: tarfile.TarFile) -> None:
        with tempfile.TemporaryDirectory() as folder:
            times, run = Path(folder) / "times.json", RunDir(Path(folder) / "run")
            launcher, script = self._command(job, how, times, run)
            began = time.monotonic()
            cpu = self.args.backend == "gloo"
            code, output = launch(launcher, script, ranks=self.args.ranks, seconds=seconds, cpu=cpu)
            took = time.monotonic() - began
            try:
                if code:
                    raise RuntimeError(f"exit code {code}")
                if how == "bare":
                    self.measured[job.name] = measure(json.loads(times.read_text()))
                else:
                    self._keep(job, how, run, traces)
                    self._read(job, how, run, took)
            except Exception as error:  # the other jobs are worth their time all the same
                self.rows.append({"name": job.name, "capture": how, "error": str(error), "output": output[-3000:]})
                row(job.name, how, f"FAILED: {error}")
                print(output[-1500:], file=sys.stderr)

    @staticmethod
    def _command(job: Job, how: str, times: Path, run: RunDir) -> tuple[tuple[str, ...], list[str]]:
        script = [str(HERE / job.words[0]), *job.words[1:], "--fault", job.fault]
        if how == "bare":
            twice = ["--steps", str(2 * FAULT_FROM), "--fault-from", str(FAULT_FROM)]
            return TORCHRUN, [*script, *twice, "--times", str(times)]
        settings = [f"run.dir={run.path}", "schedule.active=3", f"capture.backend={how}"]
        return RANKSCOPE, [*(w for s in settings for w in ("-S", s)), *script, "--steps", str(STEPS[how])]

    def _read(self, job: Job, how: str, run: RunDir, took: float) -> None:
        manifest = from_json(RunManifest, run.manifest.read_bytes())
        report = from_json(ClusterReport, (run.report / "report.json").read_bytes())
        measured = self.measured.get(job.name)
        judgement = judge(job, report, measured)
        self.judged.setdefault(how, []).append((job, judgement))
        entry = facts(job, how, manifest, report, judgement, measured, took)
        self.rows.append(entry)
        show(entry)

    def _keep(self, job: Job, how: str, run: RunDir, traces: tarfile.TarFile) -> None:
        paths = [path for rank in range(self.args.ranks) if (path := run.trace(0, 0, rank)).is_file()]
        with ProcessPoolExecutor() as pool:
            trimmed = list(pool.map(trim, paths))
        for path, packed in zip(paths, trimmed, strict=True):
            name = f"{job.name}_{how}/{path.name}"
            if self.kept + len(packed) > MOST_TRACES:
                self.skipped.append(f"{name}: {MOST_TRACES / 1e6:.0f} MB are kept")
                continue
            self.kept += len(packed)
            entry = tarfile.TarInfo(name)
            entry.size = len(packed)
            traces.addfile(entry, io.BytesIO(packed))
        if isinstance(traces.fileobj, io.IOBase):
            traces.fileobj.flush()

    def _save(self) -> None:
        """Write the results after each launch, because the next one may end this process."""
        whole = {
            "rows": self.rows,
            "measured": {name: dataclasses.asdict(m) for name, m in self.measured.items()},
            "score": {how: score(judged) for how, judged in self.judged.items()},
            "skipped": self.skipped,
        }
        (self.args.out / "results.json").write_text(json.dumps(whole, indent=1))
        labels = {f"{job.name}_{how}": label(job, j) for how, judged in self.judged.items() for job, j in judged}
        (self.args.out / "labels.json").write_text(json.dumps({"traces": labels}, indent=1))

"""Runs jobs one after another in a time budget: bare, for what a fault costs, and recorded, for what is said of it."""

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

from jobs import FAULT_FROM, Job, Judgement, Measured, judge, measure, score, trim
from launching import RANKSCOPE, TORCHRUN, launch

from rankscope.config import CaptureConfig
from rankscope.model import ClusterReport, RunManifest, from_json
from rankscope.rundir import RunDir

HERE = Path(__file__).parent
GUESS_S = 30.0
"""How long a launch is thought to take before the first has ended."""
LONGEST_S = 120.0
"""A launch that takes longer hangs."""
STEPS = {"inline": 24, "kineto": 120}
"""Steps of a recorded job: past its window, and past the seconds until Kineto asks what to record."""
MOST_TRACES = 14_000_000
"""Bytes of trimmed traces to keep."""
HEAD = (
    "job",
    "capture",
    "planted",
    "named",
    "right",
    "told",
    "windows",
    "clock",
    "matched",
    "claimed",
    "measured",
    "s",
)
WIDTH = (24, 8, 32, 32, 6, 5, 8, 8, 8, 12, 22, 5)


def arguments(description: str | None, ranks: int, capture: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="results.json and traces.tar are written there")
    parser.add_argument("--ranks", type=int, default=ranks)
    parser.add_argument("--budget-s", type=float, default=540.0, help="launches that do not fit are skipped and listed")
    parser.add_argument("--capture", choices=("inline", "kineto", "both"), default=capture)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl", help="gloo: on the CPU")
    parser.add_argument("--tiny", action="store_true", help="models for the CPU")
    parser.add_argument("--only", default="", metavar="NAME,...", help="jobs whose name has one of these parts")
    return parser


def captures(asked: str) -> list[str]:
    """The capture backends to record with; this version may know only one."""
    known = "backend" in CaptureConfig.__dataclass_fields__
    return [c for c in ("inline", "kineto") if asked in (c, "both") and (known or c == "inline")]


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
                    self.skipped.append(f"{job.name} {how}")
                    continue
                began = time.monotonic()
                self._one(job, how, min(left, LONGEST_S), traces)
                self.longest[how] = max(min(time.monotonic() - began, LONGEST_S / 2), self.longest.get(how, 0.0))
                self._save()
        for how, judged in self.judged.items():
            print(f"\n{how}: " + "; ".join(f"{name} {a} of {b}" for name, (a, b) in score(judged).items()))
        for line in self.skipped:
            print(f"skipped, no time left: {line}")
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
                    self._read(job, how, run, took)
                    self._keep(job, how, run, traces)
            except (RuntimeError, OSError, ValueError) as error:
                self.rows.append({"name": job.name, "capture": how, "error": str(error), "output": output[-3000:]})
                row(job.name, how, f"FAILED: {error}")
                print(output[-3000:], file=sys.stderr)

    @staticmethod
    def _command(job: Job, how: str, times: Path, run: RunDir) -> tuple[tuple[str, ...], list[str]]:
        script = [str(HERE / job.words[0]), *job.words[1:], "--fault", job.fault]
        if how == "bare":
            twice = ["--steps", str(2 * FAULT_FROM), "--fault-from", str(FAULT_FROM)]
            return TORCHRUN, [*script, *twice, "--times", str(times)]
        settings = [
            f"run.dir={run.path}",
            "schedule.active=3",
            *([f"capture.backend={how}"] if how != "inline" else []),
        ]
        return RANKSCOPE, [*(w for s in settings for w in ("-S", s)), *script, "--steps", str(STEPS[how])]

    def _read(self, job: Job, how: str, run: RunDir, took: float) -> None:
        records = from_json(RunManifest, run.manifest.read_bytes()).windows[0].records
        report = from_json(ClusterReport, (run.report / "report.json").read_bytes())
        spans = {(r.first_step, r.last_step) for r in records}
        aligned = len(spans) == 1 and all(r.status == "ok" and r.agreed for r in records)
        measured = self.measured.get(job.name)
        judgement = judge(job, report, measured)
        self.judged.setdefault(how, []).append((job, judgement))
        facts = {"run": report.run, "clock": report.clock, "collectives": report.collectives}
        self.rows.append(
            {
                "capture": how,
                **dataclasses.asdict(job),
                **dataclasses.asdict(judgement),
                "measured": dataclasses.asdict(measured) if measured else None,
                "aligned": aligned,
                "ranks": [[r.first_step, r.last_step, r.status, r.reason, r.notes] for r in records],
                **{name: dataclasses.asdict(fact) for name, fact in facts.items()},
                "verdict": dataclasses.asdict(report.verdict),
                "findings": [[f.kind, f.ranks, f.cost_ms_per_step, f.title] for f in report.findings],
                "errors": [f"{e.where}: {e.message}" for e in report.errors],
                "seconds": took,
            }
        )
        claimed, error = judgement.claimed_ms, report.verdict.cost_error_ms
        row(
            job.name,
            how,
            _pairs(job.truth) or job.job_wide or "-",
            _pairs(judgement.named) or report.verdict.kind,
            ("ok" if judgement.right else "WRONG") + ("*" if judgement.partners_blamed else ""),
            f"{judgement.told}/{judgement.planted}",
            "same" if aligned else "DIFFER",
            "-" if report.clock.error_us is None else f"{report.clock.error_us:.0f} us",
            "-" if report.collectives.matched_pct is None else f"{report.collectives.matched_pct:.1f} %",
            "-" if claimed is None else f"{claimed:.1f}±{error or 0.0:.1f}",
            f"{measured.faulty_ms:.1f}-{measured.healthy_ms:.1f}={measured.cost_ms:.1f}" if measured else "-",
            f"{took:.0f}",
        )
        for failed in report.errors:
            print(f"  analysis failed: {failed.where}: {failed.message}")

    def _keep(self, job: Job, how: str, run: RunDir, traces: tarfile.TarFile) -> None:
        with ProcessPoolExecutor() as pool:
            trimmed = list(pool.map(trim, [run.trace(0, 0, rank) for rank in range(self.args.ranks)]))
        for rank, packed in enumerate(trimmed):
            if self.kept + len(packed) > MOST_TRACES:
                self.skipped.append(f"trace of {job.name} {how} rank {rank}")
                continue
            self.kept += len(packed)
            entry = tarfile.TarInfo(f"{job.name}_{how}/rank_{rank}.json.gz")
            entry.size = len(packed)
            traces.addfile(entry, io.BytesIO(packed))

    def _save(self) -> None:
        """After each launch: the next may take all with it."""
        whole = {
            "rows": self.rows,
            "measured": {name: dataclasses.asdict(m) for name, m in self.measured.items()},
            "score": {how: score(judged) for how, judged in self.judged.items()},
            "skipped": self.skipped,
        }
        (self.args.out / "results.json").write_text(json.dumps(whole, indent=1))


def _pairs(found: dict[int, str]) -> str:
    return ", ".join(f"{rank} {cause}" for rank, cause in sorted(found.items()))


def row(*cells: str) -> None:
    print(" ".join(str(c).ljust(w) for c, w in zip(cells, WIDTH, strict=False)).rstrip(), flush=True)

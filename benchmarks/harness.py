"""Runs jobs one after another in a time budget: bare, for what a fault costs, and recorded, for what is said of it."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs import FAULT_FROM, Job, Judgement, Measured, judge, measure, score, trim

from rankscope.config import CaptureConfig
from rankscope.model import ClusterReport, RunManifest, from_json
from rankscope.rundir import RunDir

HERE = Path(__file__).parent
GUESS_S = 30.0
"""How long a launch is thought to take before the first has ended."""
LONGEST_S = 120.0
"""A launch that takes longer hangs."""
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
                self._one(job, how, min(left, LONGEST_S), traces)
                self._save()
        for how, judged in self.judged.items():
            print(f"\n{how}: " + "; ".join(f"{name} {a} of {b}" for name, (a, b) in score(judged).items()))
        for line in self.skipped:
            print(f"skipped, no time left: {line}")
        return int(bool(self.skipped) or any(not r.get("right") for r in self.rows))

    def _one(self, job: Job, how: str, seconds: float, traces: tarfile.TarFile) -> None:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            times, run = Path(folder) / "times.json", RunDir(Path(folder) / "run")
            script = [str(HERE / job.words[0]), *job.words[1:], "--fault", job.fault]
            if how == "bare":
                words = ["torch.distributed.run"]
                script += ["--steps", str(2 * FAULT_FROM), "--fault-from", str(FAULT_FROM), "--times", str(times)]
            else:
                words = ["rankscope.cli", "run", "-S", f"run.dir={run.path}", "-S", "schedule.active=3"]
                words += ["-S", f"capture.backend={how}"] if how != "inline" else []
                script += ["--steps", "24"]
            code, output = self._launch([*words, *script], seconds)
            took = time.monotonic() - began
            self.longest[how] = max(took, self.longest.get(how, 0.0))
            try:
                if code:
                    raise RuntimeError(f"exit code {code}")
                if how == "bare":
                    self.measured[job.name] = measure(json.loads(times.read_text()))
                else:
                    self._read(job, how, run, took, traces)
            except (RuntimeError, OSError, ValueError) as error:
                self.rows.append({"job": job.name, "capture": how, "error": str(error), "output": output[-3000:]})
                row(job.name, how, f"FAILED: {error}")
                print(output[-3000:], file=sys.stderr)

    def _launch(self, words: list[str], seconds: float) -> tuple[int, str]:
        """Run ``python -m words`` on all ranks, and end it, children too, when the time is over."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        at = 2 if words[0] == "rankscope.cli" else 1
        ours = ["--nproc-per-node", str(self.args.ranks), "--master-addr", "127.0.0.1", "--master-port", port]
        command = [sys.executable, "-m", *words[:at], *ours, *words[at:]]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6"}
        if self.args.backend == "gloo":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)  # the launcher ends its ranks
            try:
                output, _ = process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
            return 124, output + f"\nended after {seconds:.0f} s"
        return process.returncode, output

    def _read(self, job: Job, how: str, run: RunDir, took: float, traces: tarfile.TarFile) -> None:
        manifest = from_json(RunManifest, run.manifest.read_bytes())
        report = from_json(ClusterReport, (run.report / "report.json").read_bytes())
        records = manifest.windows[0].records
        spans = {(r.first_step, r.last_step) for r in records}
        aligned = len(spans) == 1 and all(r.status == "ok" and r.agreed for r in records)
        measured = self.measured.get(job.name)
        judgement = judge(job, report, measured)
        self.judged.setdefault(how, []).append((job, judgement))
        self.rows.append(
            {
                "job": job.name,
                "capture": how,
                "words": list(job.words),
                "fault": job.fault,
                "truth": {str(rank): cause for rank, cause in job.truth.items()},
                "job_wide": job.job_wide,
                **dataclasses.asdict(judgement),
                "aligned": aligned,
                "windows": sorted(spans, key=str),
                "records": [r.reason or ", ".join(r.notes) for r in records if r.reason or r.notes],
                "clock": dataclasses.asdict(report.clock),
                "collectives": dataclasses.asdict(report.collectives),
                "verdict": dataclasses.asdict(report.verdict),
                "findings": [[f.kind, f.ranks, f.cost_ms_per_step] for f in report.findings],
                "errors": [dataclasses.asdict(e) for e in report.errors],
                "stall_ms": report.run.longest_stall_ms,
                "measured": dataclasses.asdict(measured) if measured else None,
                "seconds": took,
            }
        )
        claimed, error = judgement.claimed_ms, report.verdict.cost_error_ms
        row(
            job.name,
            how,
            _pairs(job.truth) if job.truth else job.job_wide or "-",
            _pairs(judgement.named) if judgement.named else report.verdict.kind,
            ("ok" if judgement.right else "WRONG") + ("*" if judgement.partners_blamed else ""),
            f"{judgement.told}/{judgement.planted}",
            "same" if aligned else "DIFFER",
            "-" if report.clock.error_us is None else f"{report.clock.error_us:.0f} us",
            "-" if report.collectives.matched_pct is None else f"{report.collectives.matched_pct:.1f} %",
            "-" if claimed is None else f"{claimed:.1f}±{error or 0.0:.1f}",
            f"{measured.faulty_ms:.1f}-{measured.healthy_ms:.1f}={measured.cost_ms:.1f}" if measured else "-",
            f"{took:.0f}",
        )
        for record in records:
            path = run.trace(0, 0, record.rank)
            if not path.is_file():
                continue
            packed = trim(path)
            if self.kept + len(packed) > MOST_TRACES:
                self.skipped.append(f"trace of {job.name} {how} rank {record.rank}")
                continue
            self.kept += len(packed)
            entry = tarfile.TarInfo(f"{job.name}_{how}/rank_{record.rank}.json.gz")
            entry.size = len(packed)
            traces.addfile(entry, io.BytesIO(packed))

    def _save(self) -> None:
        """After each launch: the next may take all with it."""
        import torch

        cuda = self.args.backend == "nccl" and torch.cuda.is_available()
        whole = {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if cuda else "CPU",
            "ranks": self.args.ranks,
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

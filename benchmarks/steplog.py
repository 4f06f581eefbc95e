"""Cost of the step log, in time and in bytes.

    python benchmarks/steplog.py [--steps 2000] [--ms 20] [--hours 10] [--cuda]

One process trains in blocks of 4 steps, in turns without and with all that the agent does in a step that is not
recorded (ABBA: marks at forward and backward, counts of the scheduler, the entry, reads of torch's flight recorder as
often as by default; with ``--cuda`` also five events of the device). The figure is the median over pairs of blocks of
the ratio of their median steps, and of the CPU time of the thread; the reads are in the ratio of all steps. Each step
has five collectives in a group of one rank. Weights are compared bit by bit. Then so many hours of steps of a
log-normal length, with one in a hundred much longer, are logged, drained and placed.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from rankscope.agent.backends.call_notes import recorded_calls
from rankscope.agent.steps import phases, step_log
from rankscope.agent.steps.call_times import CallTimes
from rankscope.agent.steps.device_times import DeviceTimes
from rankscope.agent.steps.step_log import StepLog
from rankscope.agent.windows.agreement import Agreement
from rankscope.agent.windows.notices import Notices
from rankscope.config import ToolConfig, to_agent_spec
from rankscope.node.gathering.step_log import StepLogDrain
from rankscope.records.running.step_log import STEP_LOG_ENTRY
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool
from rankscope.statistics.step_time import StepTimeEstimate

BLOCK = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument(
        "--ms",
        type=float,
        default=20.0,
        help="length of a step, filled up by sleeping: what is shorter than that shows in the CPU time only",
    )
    parser.add_argument("--hours", type=float, default=10.0, help="0 leaves this part out")
    parser.add_argument("--cuda", action="store_true", help="train on a GPU, with its times in the log")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl" if options.cuda else "gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        device = DeviceTimes(torch.cuda) if options.cuda else None
        log = StepLog(Path(folder) / "ring", device)
        log.clock.follow()
        training = Training(options.cuda)
        for row in (
            ("calls alone, us a step", _alone(log)),
            ("looking for windows, us a step: rank 0, others", _looking(Path(folder))),
            *_paired(
                training,
                StepLog(Path(folder) / "other ring", device),
                options.steps,
                options.ms,
                Path(folder) / "calls",
            ),
            *_reading(training),
            *(_bytes(Path(folder), options.hours, options.ms) if options.hours else ()),
        ):
            print(f"{row[0]:66} {row[1]}", flush=True)
        dist.destroy_process_group()


def _logged(log: StepLog, turns: int) -> None:
    for _ in range(turns):
        log.mark("forward")
        log.mark("backward")
        log.mark("backward_ended")
        log.step(False, 0)


def _alone(log: StepLog, turns: int = 50) -> str:
    best = min(_timed(functools.partial(_logged, log, turns)) for _ in range(500))
    return f"{1e6 * best / turns:.1f}"


def _looking(folder: Path, turns: int = 50) -> str:
    """Measure the cost of the agreement on windows in a step without changes."""
    config, step_time = ToolConfig(), StepTimeEstimate()
    config.schedule.skip_first = 1_000_000
    for _ in range(100):
        step_time.add(20.0)
    spec = to_agent_spec(config, run_id="steplog", spool=folder)
    time.sleep(0.1)  # the folder has just been changed
    found = []
    for rank in (0, 1):
        agreement = Agreement(spec, rank, Notices(Spool(folder), 0), step_time, 0.25)
        best = min(_timed(lambda due=agreement.due: [due(step) for step in range(turns)]) for _ in range(500))
        found.append(f"{1e6 * best / turns:.1f}")
    return ", ".join(found)


def _timed(call) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


class Training:
    """Small enough to leave most of a step to sleep; the same numbers whoever asks."""

    def __init__(self, cuda: bool) -> None:
        torch.manual_seed(0)
        self.cuda = cuda
        where = "cuda" if cuda else "cpu"
        self.model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).to(where)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.batch, self.bucket = torch.randn(32, 256).to(where), torch.ones(8, device=where)

    def step(self, log: StepLog | None, ms: float, calls: CallTimes | None = None) -> None:
        begun = time.perf_counter()
        if log is not None:
            log.mark("forward")
        loss = self.model(self.batch).square().mean()
        if log is not None:
            log.mark("backward")
        loss.backward()
        for _ in range(5):
            dist.all_reduce(self.bucket)
        if log is not None:
            log.mark("backward_ended")
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.cuda:
            loss.item()
        if log is not None:
            log.step(False, 0)
        if log is not None and calls is not None:
            calls.note(log.steps - 1, time.perf_counter_ns(), log.phases.backwards())
            calls.read_if_due()
        while (left := begun + ms / 1e3 - time.perf_counter()) > 0:
            time.sleep(left / 2)


def _paired(training: Training, log: StepLog, steps: int, ms: float, path: Path):
    log.clock.follow()
    reads: list[float] = []
    calls = CallTimes(path, ToolConfig().step_log.calls_pct / 100, functools.partial(_read, reads))
    ratios, extra, all_steps = [], [], {True: 0.0, False: 0.0}
    for _ in range(20):
        training.step(None, ms)
    for pair in range(steps // (2 * BLOCK)):
        found = {}
        for logged in (True, False) if pair % 2 else (False, True):
            used, cpu = (log if logged else None), time.thread_time_ns()
            took = [_timed(lambda used=used: training.step(used, ms, calls)) for _ in range(BLOCK)]
            all_steps[logged] += sum(took)
            found[logged] = statistics.median(took), (time.thread_time_ns() - cpu) / BLOCK / 1e3
        ratios.append(found[True][0] / found[False][0])
        extra.append(found[True][1] - found[False][1])
    error = 1.25 * statistics.stdev(ratios) / len(ratios) ** 0.5
    yield (
        f"step with the log by that without, median of {len(ratios)} pairs",
        f"{statistics.median(ratios):.5f} ± {error:.5f}",
    )
    quarters = statistics.quantiles(extra, n=4)
    yield "CPU time more, us a step: median (quartiles)", f"{quarters[1]:.0f} ({quarters[0]:.0f} to {quarters[2]:.0f})"
    yield (
        f"all steps with the log, {len(reads)} reads of the recorder included, by those without",
        f"{all_steps[True] / all_steps[False]:.5f}",
    )
    yield "share of the time that these reads took, %", f"{100 * sum(reads) / all_steps[True]:.3f}"
    one, other = Training(training.cuda), Training(training.cuda)
    for _ in range(100):
        one.step(log, 0)
        other.step(None, 0)
    same = all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))
    yield "weights bit-identical after 100 steps", "yes" if same else "NO"


def _read(reads: list[float]):
    begun = time.perf_counter()
    found = recorded_calls(fast=True)
    reads.append(time.perf_counter() - begun)
    return found


def _reading(training: Training):
    for _ in range(500):  # until the recorder is full
        training.step(None, 0)
    taken: dict[bool, list[float]] = {True: [], False: []}
    for number in range(20):
        begun = time.perf_counter()
        entries = recorded_calls(fast=bool(number % 2)) or []
        taken[bool(number % 2)].append(1e3 * (time.perf_counter() - begun))
    fast, plain = (statistics.median(taken[way]) for way in (True, False))
    yield f"reading {len(entries):,} entries of the recorder, ms: pickled, JSON", f"{fast:.1f}, {plain:.1f}"
    for entry in entries[-1:]:
        times = {name: value for name, value in entry.items() if "time_" in name or name in ("state", "duration_ms")}
        yield "the last entry", str(times)


def _bytes(folder: Path, hours: float, ms: float):
    steps = round(hours * 3600e3 / ms)
    rng = np.random.default_rng(0)
    lengths = (
        (ms * 1e6 * rng.lognormal(0, 0.05, steps) * np.where(rng.random(steps) < 0.01, 5, 1)).astype(np.int64).tolist()
    )
    now = [0]
    step_log.time.perf_counter_ns = phases.perf_counter_ns = lambda: now[0]
    spool = Spool(folder)
    log, drain = StepLog(spool.step_ring(0, 0)), StepLogDrain(spool)
    for number, length in enumerate(lengths):
        now[0] += length // 3
        log.mark("forward")
        now[0] += length // 3
        log.mark("backward")
        now[0] += length - 2 * (length // 3)
        log.step(False, 0)
        if number % 60_000 == 0:
            drain.drain()
    drain.drain()
    plain = spool.step_log(spool.step_ring(0, 0)).stat().st_size
    drain.finish(RunDir(folder / "run"))
    kept = RunDir(folder / "run").step_log(0, 0).stat().st_size
    yield "bytes of an entry in the ring", str(STEP_LOG_ENTRY.size)
    yield f"{hours:g} h of {ms:g} ms steps ({steps:,}): MB on the node's disk", f"{plain / 1e6:.1f}"
    yield "the same in the run directory, gzipped: MB", f"{kept / 1e6:.1f}"
    yield "bytes a step there", f"{kept / steps:.2f}"


if __name__ == "__main__":
    main()

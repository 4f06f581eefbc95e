"""Cost of the step log, in time and in bytes.

    python benchmarks/steplog.py [--rounds 60] [--block 50] [--ms 20] [--read-rounds 12] [--hours 10] [--cuda]

One process trains in blocks of steps, three in a round, in changing order: with all that the log does in a step that is
not recorded (marks at forward and backward, counts of the scheduler, the entry; with ``--cuda`` also events of the
device), without it, and again without it. The figure is the median over rounds of the ratio of the duration of whole
blocks, which contain what is done every half second, and the same of the CPU time of the thread; the ratio of the two
blocks without the log is the control, and says what this machine can resolve. A bare step takes ``--ms``, once most of
it asleep and once computing throughout. In the third part blocks are as long as the time between two reads of torch's
flight recorder at the default share of the time, so that each block with the log has one read. Each step has five
collectives in a group of one rank. Weights are compared bit by bit. Last, so many hours of steps of a log-normal
length, with one in a hundred much longer, are logged, drained and placed.
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
from rankscope.agent.steps import step_log
from rankscope.agent.steps.call_times import CallTimes
from rankscope.agent.steps.device_times import DeviceTimes, quick_event
from rankscope.agent.steps.step_log import StepLog
from rankscope.agent.windows.agreement import Agreement
from rankscope.agent.windows.notices import Notices
from rankscope.config import ToolConfig, to_agent_spec
from rankscope.node.gathering.step_log import StepLogDrain
from rankscope.records.running.step_log import STEP_LOG_ENTRY
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool
from rankscope.statistics.step_time import StepTimeEstimate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="of three blocks, for each kind of step")
    parser.add_argument("--block", type=int, default=50, help="steps of a block")
    parser.add_argument("--ms", type=float, default=20.0, help="length of a bare step")
    parser.add_argument("--read-rounds", type=int, default=12, help="each takes three times the time between two reads")
    parser.add_argument("--hours", type=float, default=10.0, help="0 leaves this part out")
    parser.add_argument("--cuda", action="store_true", help="train on a GPU, with its times in the log")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl" if options.cuda else "gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        device = DeviceTimes(torch.cuda, quick_event) if options.cuda else None
        log = StepLog(Path(folder) / "ring", device)
        log.clock.follow()
        training = Training(options.cuda)
        print(f"{'calls alone, us a step':66} {_alone(_fresh(folder, device))}")
        print(f"{'looking for windows, us a step: rank 0, others':66} {_looking(Path(folder))}")
        for asleep in (True, False):
            training.settle(options.ms, asleep=asleep)
            name = f"{options.ms:g} ms, {'most of it asleep' if asleep else 'computing throughout'}"
            _compared(f"steps of {name}", training, _fresh(folder, device), None, options.block, options.rounds)
        training.settle(options.ms, asleep=True)
        if options.read_rounds:
            _with_reads(training, _fresh, Path(folder), device, options.read_rounds)
        for row in (
            *_bit_identical(training.cuda, log),
            *_reading(training),
            *(_bytes(Path(folder), options.hours, options.ms) if options.hours else ()),
        ):
            print(f"{row[0]:66} {row[1]}", flush=True)
        dist.destroy_process_group()


def _fresh(folder: str | Path, device: DeviceTimes | None, **more) -> StepLog:
    return StepLog(Path(folder) / f"ring {time.monotonic_ns()}", device, **more)


def _logged(log: StepLog, turns: int) -> None:
    for _ in range(turns):
        log.mark("forward")
        log.mark("backward")
        log.mark("backward_ended")
        log.step(False, 0)
    log.flush()


def _alone(log: StepLog, turns: int = 50) -> str:
    log.clock.follow()
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
        self.rest_s, self.work = 0.0, 0
        self.square = torch.randn(256, 256)

    def settle(self, ms: float, *, asleep: bool) -> None:
        """Sleep or multiply in each step, so that a bare one takes this long."""
        self.rest_s, self.work = 0.0, 0
        for _ in range(20):
            self.step(None)
        rest = ms / 1e3 - statistics.median(_timed(functools.partial(self.step, None)) for _ in range(100))
        if asleep:
            self.rest_s = max(rest, 1e-6)
            return
        one = statistics.median(_timed(self._multiply) for _ in range(200))
        self.work = max(round(rest / one), 0)

    def _multiply(self) -> None:
        torch.mm(self.square, self.square)

    def step(self, log: StepLog | None, calls: CallTimes | None = None) -> None:
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
        for _ in range(self.work):
            self._multiply()
        if log is not None:
            log.step(False, 0)
            if calls is not None and log.steps % calls.every == 0:
                log.flush()
                calls.read_if_due()
        if self.rest_s:
            time.sleep(self.rest_s)


ORDERS = ((0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1), (1, 0, 2), (2, 0, 1))
"""Of the blocks of a round: 0 has the log, 1 and 2 have not."""


def _compared(
    name: str, training: Training, log: StepLog, calls: CallTimes | None, block: int, rounds: int, before=lambda: None
) -> None:
    """Print what blocks with the log take by those without, and these by each other."""
    log.clock.follow()
    wall: list[list[float]] = [[], [], []]
    cpu: list[list[float]] = [[], [], []]
    for _ in range(block):
        training.step(log, calls)  # how often the counters are read is settled
    for number in range(rounds):
        for kind in ORDERS[number % len(ORDERS)]:
            used = log if kind == 0 else None
            if used is not None:
                before()
            begun, ran = time.perf_counter(), time.thread_time_ns()
            for _ in range(block):
                training.step(used, calls)
            wall[kind].append((time.perf_counter() - begun) / block)
            cpu[kind].append((time.thread_time_ns() - ran) / block / 1e3)
    print(f"{name}: {rounds} rounds of blocks of {block:,} steps; the step's clock is read in one of {log.every}")
    for title, kind in (("with the log by without", 0), ("without by without (control)", 2)):
        ratios = [a / b for a, b in zip(wall[kind], wall[1], strict=True)]
        extra = [a - b for a, b in zip(cpu[kind], cpu[1], strict=True)]
        low, middle, high = statistics.quantiles(extra, n=4)
        error = 1.25 * statistics.stdev(extra) / rounds**0.5
        print(f"  {title:32} {_median_and_error(ratios)}   CPU, us a step {middle:+6.1f} ± {error:.1f} "
              f"({low:.1f} to {high:.1f})", flush=True)  # fmt: skip


def _with_reads(training: Training, fresh, folder: Path, device: DeviceTimes | None, rounds: int) -> None:
    """Compare blocks of as many steps as there are between two reads of the recorder, the read included."""
    reads: list[float] = []
    calls = CallTimes(folder / "calls", ToolConfig().step_log.calls_pct / 100, functools.partial(_read, reads))
    log = fresh(folder, device, noted=calls.note)
    log.clock.follow()
    for _ in range(500):  # until the recorder is full
        training.step(None)
    while len(reads) < 2:  # until the pause follows from what a read takes
        training.step(log, calls)
    block = calls.every

    def to_the_middle() -> None:  # one read in the middle of each block
        while log.steps % block != block // 2:
            training.step(log, calls)

    _compared("with a read in each block", training, log, calls, block, rounds, to_the_middle)
    print(f"{f'reads, ms: median of {len(reads)}':66} {1e3 * statistics.median(reads):.1f}")


def _median_and_error(ratios: list[float]) -> str:
    error = 1.25 * statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    return f"{statistics.median(ratios):.5f} ± {error:.5f}"


def _bit_identical(cuda: bool, log: StepLog):
    one, other = Training(cuda), Training(cuda)
    for _ in range(100):
        one.step(log)
        other.step(None)
    same = all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))
    yield "weights bit-identical after 100 steps", "yes" if same else "NO"


def _read(reads: list[float]):
    begun = time.perf_counter()
    found = recorded_calls(fast=True)
    reads.append(time.perf_counter() - begun)
    return found


def _reading(training: Training):
    training.rest_s, training.work = 0.0, 0
    for _ in range(500):  # until the recorder is full
        training.step(None)
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
    step_log.perf_counter_ns = lambda: now[0]
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
    log.close()
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

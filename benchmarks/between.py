"""Real gloo jobs with a planted pattern: the verdict from the step logs, its ranks, and from which step on it is right.

    python benchmarks/between.py OUT [--runs 10] [--ranks 2] [--steps 600] [--ms 40] [--patterns burst,none] [--lanes 8]

Each job runs under ``rankscope run`` without a window, on a lane of processors of its own, its seed the number of the
run; its processes are forked from one that has loaded torch. Its step logs are judged as a whole: *named* are the right
ranks and no other (of an evaluation or a checkpoint nobody, and the occasion is told), *as such* with the planted
pattern. Then they are judged as they stood after every 25 steps: *first said* is the first of these from which on the
right ranks and no other are named; *live* is the same at the steps at which a node's helper would have judged, every
200. ``none+`` trains beside two burning processes; ``asleep`` sleeps in its backward, with a recorder of calls that is
read at 2 % of the time, for the job is short. What is in OUT already is judged again and not launched: called again, it
goes on where it stopped.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from rankscope.between.judge import judge_logs  # noqa: E402 - the path first
from rankscope.between.step_logs import StepTimes, read_step_log  # noqa: E402
from rankscope.rundir.layout import RunDir  # noqa: E402
from support.forking.client import Forked  # noqa: E402
from support.launching import environment  # noqa: E402

JOB = TESTS / "dist" / "jobs" / "between.py"
_server: dict[str, Any] = {}
"""Of this process, which works on one lane."""


@dataclass(frozen=True)
class Planted:
    """Expected verdict of a pattern, and the first step in which the pattern occurs."""

    job: str
    kind: str = ""
    ranks: tuple[int, ...] = ()
    onset: int = 0
    place: str = "input"

    @property
    def accuses(self) -> bool:
        return self.kind not in ("", "evaluation", "checkpoint")


PATTERNS = {
    "none": Planted("none"),
    "none+": Planted("none"),
    "burst": Planted("burst", "every", (1,), 24),
    "asleep": Planted("burst", "every", (1,), 24, "backward"),
    "since": Planted("since", "since", (1,), 200),
    "drift": Planted("drift", "drifting", (1,), 201),
    "spell": Planted("spell", "spell", (1,), 300),
    "turns": Planted("turns", "turns", (), 9),
    "evaluation": Planted("evaluation", "evaluation", (), 49),
    "checkpoint": Planted("checkpoint", "checkpoint", (0,), 39),
}
BURN = "import os\np = os.getppid()\nwhile os.getppid() == p: sum(range(10_000))"
FIRST, EVERY, LIVE_EVERY = 125, 25, 200
LONGEST_S = 600


@dataclass
class Told:
    """Result of one job."""

    pattern: str
    run: int
    step_ms: float
    held_ms: float
    told: str
    named: bool
    as_such: bool
    innocents: int
    first: int | None = None
    live: int | None = None

    def line(self) -> str:
        cells = ("yes" if self.named else "NO", "yes" if self.as_such else "no", self.innocents)
        said = f"{self.first or '':>10} {self.live or '':>5}"
        numbers = f"{self.run:3} {self.step_ms:8.1f} {self.held_ms:8.1f}"
        return f"{self.pattern:10} {numbers}  {self.told:38} {cells[0]:5} {cells[1]:7} {cells[2]:9} {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--ms", type=float, default=40.0)
    parser.add_argument("--patterns", default=",".join(PATTERNS))
    parser.add_argument("--lanes", type=int, default=1, help="jobs at a time, each on processors of its own")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="begin no job after so many seconds")
    options = parser.parse_args()
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    begun, own = time.monotonic(), sorted(os.sched_getaffinity(0))
    width = max(len(own) // options.lanes, 1)
    context = get_context("spawn")  # a forked one would have this one's threads of numpy half
    lanes = context.Queue()
    for lane in range(options.lanes):
        lanes.put(own[lane * width : (lane + 1) * width] or own)
    jobs = [(pattern, run) for run in range(options.runs) for pattern in options.patterns.split(",")]
    done: list[Told] = []
    print(f"{'pattern':10} run  step ms  held ms  {'told':38} named as such innocents first said  live")
    with ProcessPoolExecutor(options.lanes, context, initializer=_pin, initargs=(lanes,)) as pool:
        waiting = [pool.submit(_one, options, pattern, run, begun + options.budget_s) for pattern, run in jobs]
        for future in as_completed(waiting):
            if (told := future.result()) is not None:
                done.append(told)
                print(told.line(), flush=True)
    print(f"\n{len(done)} jobs of {options.ranks} ranks, {options.steps} steps, {options.ms:g} ms planted; "
          f"{time.monotonic() - begun:.0f} s, {options.lanes} lane(s) of {width} processors\n")  # fmt: skip
    print("\n".join(_table(done)))


def _pin(lanes) -> None:
    """Settle this process on its lane, with a server that forks what it launches (tests/support/forking)."""
    os.sched_setaffinity(0, lanes.get())
    folder = tempfile.mkdtemp()
    _server["address"] = str(Path(folder) / "socket")
    words = [sys.executable, "-u", "-m", "support.forking.server", _server["address"]]
    server = subprocess.Popen(
        words, cwd=TESTS, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    _server["process"] = server  # it ends with this process, whose end of its standard input closes
    if server.stdout is None or server.stdout.readline() != "ready\n":
        raise RuntimeError("the server that forks has not begun")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _table(done: Sequence[Told]) -> Iterable[str]:
    heads = ["planted", "jobs", "named", "as such", "innocents", "median step, held up, ms"]
    heads += ["first said, steps after onset", "live"]
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for pattern, planted in PATTERNS.items():
        own = [told for told in done if told.pattern == pattern]
        if not own:
            continue
        step, held = (statistics.median(values) for values in zip(*((t.step_ms, t.held_ms) for t in own), strict=True))
        cells = [
            pattern,
            len(own),
            sum(t.named for t in own),
            sum(t.as_such for t in own),
            sum(t.innocents for t in own),
        ]
        cells += [f"{step:.0f}, {held:.0f}"]
        cells += [_after([t.first for t in own], planted), _after([t.live for t in own], planted)]
        yield f"| {' | '.join(map(str, cells))} |"


def _after(steps: Sequence[int | None], planted: Planted) -> str:
    known = sorted(step - planted.onset for step in steps if step)
    if not planted.accuses or not known:
        return ""
    never = f", {len(steps) - len(known)} never" if len(known) < len(steps) else ""
    return f"{known[0]} to {known[-1]}, median {statistics.median(known):.0f}{never}"


def _one(options: argparse.Namespace, pattern: str, run: int, end: float) -> Told | None:
    folder = RunDir(options.out / f"{pattern}_{options.ranks}_{run}")
    paths = {rank: folder.step_log(0, rank) for rank in range(options.ranks)}
    if not all(path.exists() for path in paths.values()):
        if time.monotonic() > end:
            return None
        shutil.rmtree(folder.path, ignore_errors=True)
        burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(2 * pattern.endswith("+"))]
        try:
            _launch(options, PATTERNS[pattern], run, folder)
        finally:
            for process in burning:
                process.kill()
                process.wait()
    return _judged(pattern, run, {rank: read_step_log(path) for rank, path in paths.items()})


def _launch(options: argparse.Namespace, planted: Planted, run: int, folder: RunDir) -> None:
    settings = [f"run.dir={folder.path}", "schedule.skip_first=1000000", "analysis.enabled=false", "live.mode=off"]
    settings += ["step_log.calls_pct=2"] * (planted.place == "backward")
    flags = [word for setting in settings for word in ("-S", setting)]
    words: list[object] = [sys.executable, "-m", "rankscope", "run", *flags, "--standalone"]
    words += ["--nproc-per-node", options.ranks, JOB, planted.job, "--steps", options.steps, "--ms", options.ms]
    words += ["--seed", run, "--where", planted.place]
    said = folder.path.with_suffix(".log")
    with said.open("w") as log:
        job = Forked([str(word) for word in words], server=_server["address"], env=environment(), cwd=options.out,
                     stdout=log, stderr=log)  # fmt: skip
        if job.wait(LONGEST_S) != 0:
            raise RuntimeError(f"{folder.path.name} has failed, see {said}")


def _judged(pattern: str, run: int, times: Mapping[int, StepTimes]) -> Told:
    planted, verdict = PATTERNS[pattern], judge_logs(times)
    ranks = set(times) if planted.kind == "turns" else set(planted.ranks)
    accused = ranks if planted.accuses else set()
    found = [p for p in verdict.patterns if p.kind == planted.kind and set(p.ranks) == ranks]
    told = Told(
        pattern=pattern,
        run=run,
        step_ms=verdict.step_ms or 0.0,
        held_ms=verdict.held_ms or 0.0,
        told="; ".join(f"{p.kind} {p.ranks or 'all'}" for p in verdict.patterns) or verdict.kind,
        named=set(verdict.ranks) == accused and (planted.accuses or not planted.kind or bool(found)),
        as_such=bool(found) or not planted.kind,
        innocents=len(set(verdict.ranks) - accused),
    )
    if planted.accuses:
        steps = min(log.steps for log in times.values())
        told.first = _first_said(times, accused, range(FIRST, steps + 1, EVERY), on_host=True)
        told.live = _first_said(times, accused, range(LIVE_EVERY, steps + 1, LIVE_EVERY), on_host=False)
    return told


def _first_said(times: Mapping[int, StepTimes], ranks: set[int], ends: Iterable[int], *, on_host: bool) -> int | None:
    first = None
    for end in ends:
        verdict = judge_logs({rank: log.between(0, end) for rank, log in times.items()}, on_host=on_host)
        if set(verdict.ranks) != ranks:
            first = None
        elif first is None:
            first = end
    return first


if __name__ == "__main__":
    main()

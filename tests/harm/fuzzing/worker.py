"""Passes mutated inputs to the program, one after the other, and prints the outcome of each as a line of JSON.

``python -m harm.fuzzing.worker FOLDER FIRST COUNT``: FOLDER for its files, FIRST the number (and seed) of the first.
A process of its own, since a fault may end it, and since memory is measured by the process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from harm.fuzzing.mutations import mutate
from harm.fuzzing.seeds import make_run
from rankscope import cli
from rankscope.node.watching.requests import RequestRelay
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

__all__ = ["MOST_CPU_S", "MOST_MIB"]

MOST_CPU_S = 10
"""Of the processor, so that a busy machine changes nothing."""
MOST_WALL_S = 40
"""For what waits without working: a FIFO would be waited for for ever."""
MOST_MIB = 1024
_BREAK_OFF = 6 << 30
"""Address space: beyond it the worker fails rather than the machine."""


class LateError(BaseException):
    """Not an Exception: nothing in the program may take it for a fault of its own."""


def analyze(run: RunDir, rng: random.Random) -> int:
    words = ["analyze", str(run.path), "--output", str(run.path / "out"), "--format", rng.choice(("terminal", "json"))]
    return cli.main(words if rng.random() < 0.1 else [*words, "--no-hta"])


def merge(run: RunDir, rng: random.Random) -> int:
    output = run.path.with_name("merged.json.gz")
    output.unlink(missing_ok=True)
    return cli.main(["merge", str(run.path), "--output", str(output)])


def report(run: RunDir, rng: random.Random) -> int:
    form = rng.choice(("terminal", "json", "markdown", "html"))
    return cli.main(["report", str(run.path), "--format", form, "--output", str(run.path / "out")])


def capture(run: RunDir, rng: random.Random) -> int:
    run.manifest.unlink(missing_ok=True)
    return cli.main(["capture", str(run.path), "--timeout", "0"])


def relay(run: RunDir, rng: random.Random) -> int:
    spool = Spool(run.path / "spool")
    spool.path.mkdir()
    with contextlib.suppress(OSError):
        RequestRelay(spool, run).relay()
    return 0


Target = tuple[str, tuple[str, ...], tuple[Callable[[RunDir, random.Random], int], ...]]
TARGETS: tuple[Target, ...] = (
    ("a trace", ("attempt_0/window_000/rank_0000[01].trace.json.gz",), (analyze, analyze, analyze, merge)),
    ("a trace", ("attempt_0/window_000/rank_0000[01].trace.json.gz",), (analyze, analyze, analyze, merge)),
    ("a plain trace", ("attempt_0/window_000/rank_0000[01].trace.json.gz",), (analyze,)),
    ("columns", ("attempt_0/window_000/rank_0000[01].parquet",), (analyze,)),
    ("run.json", ("run.json",), (analyze, analyze, merge)),
    ("a step log", ("attempt_0/pulse/rank_0000[01].bin.gz",), (analyze,)),
    ("a memory snapshot", ("attempt_0/window_000/*.pickle",), (analyze,)),
    ("report.json", ("report/report.json",), (report,)),
    ("a record", ("attempt_0/window_000/rank_0000[01].json",), (capture, analyze)),
    ("a request", ("requests/request_0000.json",), (relay, capture)),
)


def one(number: int, whole: Path, place: Path) -> dict[str, object]:
    """Make input ``number`` and give it to the program."""
    rng = random.Random(number)
    what, patterns, operations = TARGETS[number % len(TARGETS)]
    aside = None if what == "a memory snapshot" else shutil.ignore_patterns("*.pickle")  # each takes a process to read
    shutil.copytree(whole, place, symlinks=True, ignore=aside)
    chosen = rng.choice(sorted(file for pattern in patterns for file in place.glob(pattern)))
    if what == "a trace" or what == "a plain trace":
        chosen.with_name(chosen.name.replace(".trace.json.gz", ".parquet")).unlink()
    if what == "a plain trace":
        import gzip

        chosen.with_suffix("").write_bytes(gzip.decompress(chosen.read_bytes()))
        chosen.unlink()
        chosen = chosen.with_suffix("")
    how = mutate(rng, chosen)
    operation = rng.choice(operations)
    said: dict[str, object] = {"number": number, "what": what, "how": how, "operation": operation.__name__}
    out = io.StringIO()
    fault = None
    resident = _memory_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    signal.setitimer(signal.ITIMER_PROF, 3 * MOST_CPU_S)
    signal.setitimer(signal.ITIMER_REAL, MOST_WALL_S)
    faulthandler.dump_traceback_later(MOST_WALL_S + 5, exit=True)  # where no signal is heeded: in a library's loop
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            said["code"] = operation(RunDir(place), rng)
    except LateError:
        fault = f"late: {traceback.format_exc(limit=-6)}"
    except BaseException:
        fault = traceback.format_exc(limit=-12)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime - begun
    peak = _memory_mib("VmHWM")
    said |= {"seconds": round(used, 2), "mib": peak, "before_mib": resident}
    text = out.getvalue()
    if fault is None and "Traceback" in text:
        fault = text[-2000:]
    if fault is None and used > MOST_CPU_S:
        fault = f"{used:.1f} s"
    if fault is None and peak > MOST_MIB:
        fault = f"{peak} MiB"
    written = place / "out" / "report.json"
    if fault is None and written.exists() and operation is analyze:
        said["errors"] = [e["where"] + ": " + e["message"] for e in json.loads(written.read_text())["errors"]]
    said["fault"] = fault
    said["last"] = text.strip().rpartition("\n")[2][:200]
    return said


def _memory_mib(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) // 1024


def _late(_number: int, _frame: FrameType | None) -> None:
    raise LateError


def main() -> None:
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (_BREAK_OFF, _BREAK_OFF))
    signal.signal(signal.SIGPROF, _late)
    signal.signal(signal.SIGALRM, _late)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    whole, place = folder / "whole", folder / "input"
    make_run(whole)
    for number in range(first, first + count):
        print(json.dumps({"begins": number}), flush=True)
        said = one(number, whole, place)
        print(json.dumps(said), flush=True)
        shutil.rmtree(place)


if __name__ == "__main__":
    main()

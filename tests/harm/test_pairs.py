"""Jobs with and without rankscope: their results are equal to the last bit, and they end in the same way."""

from __future__ import annotations

import re
import signal
import textwrap
from pathlib import Path

import pytest

from support.launching import RANKSCOPE, TORCHRUN, flags_of

pytestmark = pytest.mark.dist

JOBS = Path(__file__).parent / "jobs"
STYLES = {
    name: job
    for job in (JOBS / "training.py", JOBS / "surroundings.py")
    for name in re.findall(r"^@style\ndef (\w+)", job.read_text(encoding="utf-8"), re.M)
}
QUICK = ("hooks_alone", "modes_alone", "accumulation")
"""The rest is for ``make test-harm``."""
OFTEN = flags_of("schedule.skip_first=3", "schedule.warmup=1", "schedule.active=3", "schedule.every=9")
UNLIMITED = flags_of("budget.windows=10000", "budget.step_pct=100", "analysis.enabled=false")


@pytest.mark.forked
@pytest.mark.parametrize("style", [s if s in QUICK else pytest.param(s, marks=pytest.mark.long) for s in STYLES])
def test_what_comes_out_is_the_same_to_the_last_bit(start, finish, tmp_path, style):
    ranks = 1 if style.endswith("_alone") else 2
    launchers = {"theirs": TORCHRUN, "ours": [*RANKSCOPE, *OFTEN, *UNLIMITED, *flags_of(f"run.dir={tmp_path / 'RUN'}")]}
    running = {}
    for name, launcher in launchers.items():
        (tmp_path / name).mkdir()
        words = ["--standalone", "--nproc-per-node", ranks, STYLES[style], style, tmp_path / name]
        running[name] = start([*launcher, *words])
    done = {name: finish(process) for name, process in running.items()}
    assert [one.code for one in done.values()] == [0, 0], [one.stderr for one in done.values()]
    for rank in range(ranks):
        theirs, ours = ((tmp_path / name / str(rank)).read_text() for name in launchers)
        assert ours == theirs
    windows = done["ours"].manifest.windows
    whole = sum(all(record.trace is not None for record in window.records) for window in windows)
    assert whole >= 1, [(r.status, r.reason) for w in windows for r in w.records]


ENDS = """
    import atexit, os, signal, sys, threading, time
    import torch
    {before}
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(30):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        if step == 8:  # inside of the window of steps 6 to 11
            {inside}
    print("LAST", flush=True)
    {after}
"""
EXEC = "os.execv(sys.executable, [sys.executable, '-c', 'print(\"EXEC\"); raise SystemExit(4)'])"
BUSY_THREAD = "threading.Thread(target=lambda: [torch.ones(9) + 1 for _ in iter(int, 1)], daemon=True).start()"
ENDINGS = {
    "sys.exit(0)": ("", "pass", "sys.exit(0)"),
    "sys.exit(3)": ("", "sys.exit(3)", ""),
    "sys.exit(256)": ("", "pass", "sys.exit(256)"),  # which is 0 to who waits
    "sys.exit(text)": ("", "sys.exit('words')", ""),
    "os._exit": ("", "os._exit(9)", ""),
    "exception": ("", "raise ValueError('planted')", ""),
    "interrupt": ("", "raise KeyboardInterrupt", ""),
    "segfault": ("", "os.kill(os.getpid(), signal.SIGSEGV)", ""),
    "abort": ("", "os.abort()", ""),
    "kill": ("", "os.kill(os.getpid(), signal.SIGKILL)", ""),
    "terminated": ("", "os.kill(os.getpid(), signal.SIGTERM)", ""),
    "hung up": ("", "os.kill(os.getpid(), signal.SIGHUP)", ""),
    "own handler that exits": ("signal.signal(15, lambda *a: sys.exit(7))", "os.kill(os.getpid(), 15)", ""),
    "own handler that goes on": ("signal.signal(15, lambda *a: print('MINE'))", "os.kill(os.getpid(), 15)", ""),
    "own handler from inside": ("", "signal.signal(15, lambda *a: sys.exit(7)); os.kill(os.getpid(), 15)", ""),
    "ignored signal": ("signal.signal(15, signal.SIG_IGN)", "os.kill(os.getpid(), 15)", ""),
    "order at exit": ("[atexit.register(print, 'EXIT', n) for n in range(3)]", "pass", "atexit.register(print, 9)"),
    "failure at exit": ("", "pass", "atexit.register(lambda: 1 / 0)"),
    "own excepthook": ("sys.excepthook = lambda *a: print('HOOK', a[0].__name__)", "raise ValueError", ""),
    "a thread that fails": ("", "t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", ""),
    "a thread that ends later": (
        "over = threading.Event()",
        "threading.Thread(target=lambda: (over.wait(), print('LATER'))).start()",
        "over.set()",
    ),
    "a daemon thread": ("", BUSY_THREAD, ""),
    "standard output closed": ("", "sys.stdout.flush(); os.close(1)", ""),
    "a child that outlives": ("", "os.fork() or (time.sleep(0.1), os._exit(0))", ""),
    "exec": ("", f"sys.stdout.flush(); {EXEC}", ""),
}


@pytest.mark.forked_launcher
@pytest.mark.parametrize(
    "ending", [e if e in ("sys.exit(3)", "terminated") else pytest.param(e, marks=pytest.mark.long) for e in ENDINGS]
)
def test_it_ends_in_the_same_way(start, finish, tmp_path, ending):
    before, inside, after = ENDINGS[ending]
    script = tmp_path / "ends.py"
    script.write_text(textwrap.dedent(ENDS).format(before=before, inside=inside, after=after))
    settings = flags_of(f"run.dir={tmp_path / 'RUN'}", "schedule.skip_first=3", "analysis.enabled=false")
    running = [start([*launcher, "--standalone", script]) for launcher in (TORCHRUN, [*RANKSCOPE, *settings])]
    theirs, ours = (finish(process) for process in running)
    assert ours.code == theirs.code, ours.stderr
    assert ours.stdout == theirs.stdout
    assert told_codes(ours.stderr) == told_codes(theirs.stderr)
    assert ours.manifest.exit_code == ours.code


def told_codes(text: str) -> list[str]:
    """Exit codes and signals of ranks in torchrun's own words."""
    return re.findall(r"exitcode *: (-?\d+)|(Signal \d+ \(SIG\w+\)) received", text)


@pytest.mark.long
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
@pytest.mark.parametrize("handled", [False, True])
def test_signals_to_the_launcher_end_it_as_they_end_torchrun(start, finish, tmp_path, name, handled):
    # GIVEN a rank that waits inside of its window, with a handler of its own or none
    own = "signal.signal(signal.SIGTERM, lambda *a: (print('MINE', flush=True), sys.exit(5)))" if handled else ""
    script = tmp_path / "waits.py"
    inside = "print('AT', flush=True); time.sleep(1000)"
    script.write_text(textwrap.dedent(ENDS).format(before=own, inside=inside, after=""))
    settings = flags_of(f"run.dir={tmp_path / 'RUN'}", "schedule.skip_first=3", "analysis.enabled=false")
    seen = []
    for launcher in (TORCHRUN, [*RANKSCOPE, *settings]):
        process = start([*launcher, "--standalone", script])
        while "AT" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(getattr(signal, name))
        done = finish(process)
        seen.append((done.code, done.stdout))
    assert seen[0] == seen[1]

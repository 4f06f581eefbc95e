"""The state of a rank's process after recording: descriptors, environment, signals, threads, limits."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.launching import RANKSCOPE, TORCHRUN, flags_of

pytestmark = [pytest.mark.dist, pytest.mark.forked_launcher]
LOUD = {"KINETO_LOG_LEVEL": None}
"""support.launching silences libkineto's log, which is what some of these look at."""

TRAIN = """
    import os, sys, subprocess, json, threading
    begun = sorted(key for key in os.environ if key.startswith(("KINETO", "RANKSCOPE", "TEARDOWN")))
    {before}
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for step in range(24):
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        {each}
    {after}
"""


@pytest.fixture
def alone(request, start, finish, tmp_path):
    """One rank of a small job with lines of its own, under us with a window of steps 6 to 11."""
    loud = {} if request.node.get_closest_marker("forked") else LOUD  # a forked one has loaded it

    def alone(before="", each="", after="", flags=(), extra_env=None):
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(TRAIN).format(before=before, each=each, after=after))
        settings = flags_of(f"run.dir={tmp_path / 'RUN'}", "schedule.skip_first=3", "analysis.enabled=false", *flags)
        return finish(start([*RANKSCOPE, *settings, script], loud | (extra_env or {})))

    return alone


def test_neither_the_script_nor_its_children_see_a_variable_of_ours(alone):
    child = "import os, sys; print([k for k in os.environ if k.startswith(('KINETO', 'RANKSCOPE', 'TEARDOWN'))])"
    each = (
        f"seen.append(subprocess.run([sys.executable, '-S', '-c', {child!r}], capture_output=True, text=True).stdout)"
    )
    done = alone(each=each, after="print('seen', begun, sorted(set(seen)))", flags=["capture.backend=kineto"])
    assert done.code == 0, done.stderr
    seen = re.search(r"^seen (.*)$", done.stdout, re.M)[1]
    assert re.findall(r"KINETO\w*|RANKSCOPE\w*|TEARDOWN\w*", seen) == []
    assert done.records()[0].status == "ok"


def test_the_jobs_own_files_on_descriptors_1_and_2_hold_what_the_job_wrote(alone, tmp_path):
    # GIVEN a script that has opened its data as descriptors 1 and 2
    out = tmp_path / "data"
    out.mkdir()
    before = f"[os.dup2(os.open({str(out)!r} + f'/{{n}}', os.O_CREAT | os.O_WRONLY), n) for n in (1, 2)]"
    done = alone(before=before, each="os.write(1, b'1'); os.write(2, b'2')", after="os._exit(0) if False else None")
    assert done.code == 0, done.stderr
    assert ((out / "1").read_bytes(), (out / "2").read_bytes()) == (b"1" * 24, b"2" * 24)
    assert done.records()[0].status == "ok"


def test_closed_descriptors_stay_closed(alone, tmp_path):
    note = tmp_path / "note"
    after = f"""open({str(note)!r}, 'w').write(repr([os.path.exists(f'/proc/self/fd/{{n}}') for n in (0, 1, 2)]))"""
    done = alone(
        before="kept = [os.open('/dev/null', os.O_RDONLY) for _ in range(3)]; [os.close(n) for n in (1, 2)]",
        after=after,
    )
    assert done.code == 0, done.stderr
    assert done.records()[0].status == "ok"


def test_no_line_of_a_profiler_is_on_a_ranks_standard_error(start, finish, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN).format(before="", each="", after=""))
    settings = flags_of(
        f"run.dir={tmp_path / 'RUN'}", "schedule.skip_first=3", "schedule.repeat=2", "analysis.enabled=false"
    )
    words = ["-r", 3, "--log-dir", tmp_path / "logs"]
    done = finish(start([*RANKSCOPE, *settings, *words, script], LOUD))
    assert done.code == 0, done.stderr
    (err,) = (tmp_path / "logs").glob("**/0/stderr.log")
    assert err.read_text() == ""
    assert [r.status for r in done.records(window=1)] == ["ok"]


LITTLE = {
    # what Python says where RLIMIT_NPROC is reached, which does not hold for root
    "no-threads": "def no(self): raise RuntimeError('no thread can be started')\nthreading.Thread.start = no",
    "umask": "os.umask(0o077)",
    "no-home": "os.environ.pop('HOME', None); os.chdir('/proc/self')",  # where nothing can be made
    "tracer": "sys.settrace(lambda *a: None); threading.settrace(lambda *a: None)",
    "warnings": "import warnings; warnings.simplefilter('error')",
    "no-collector": "import gc; gc.disable(); gc.freeze()",
    "clock-jumps": (  # a day forth, a day back
        "import time, itertools; real, turn = time.time_ns, itertools.count(); day = 86_400 * 10**9; "
        "time.time_ns = lambda: real() + (-1) ** next(turn) * day; time.time = lambda: time.time_ns() / 1e9"
    ),
}


@pytest.mark.parametrize("which", ["all", *(pytest.param(name, marks=pytest.mark.long) for name in LITTLE)])
def test_a_process_that_may_do_little_trains_and_is_recorded(alone, which):
    before = "\n".join(LITTLE.values()) if which == "all" else LITTLE[which]
    done = alone(before=before, after="print('trained', flush=True)")
    assert done.code == 0, done.stderr
    assert "trained" in done.stdout
    (record,) = done.records()
    assert (record.status, record.reason) == ("ok", None)


@pytest.mark.forked
def test_no_file_handle_is_left_for_some_steps(alone):
    # GIVEN a script that holds every descriptor it may have in steps 4 to 8, where a window opens, and then lets go
    before = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); held = []"
    each = """
    if step == 4:
        try:
            while True: held.append(os.open('/dev/null', os.O_RDONLY))
        except OSError: pass
    if step == 8:
        [os.close(n) for n in held]"""
    done = alone(before=before, each=each, after="print('trained', flush=True)")
    assert done.code == 0, done.stderr
    assert "trained" in done.stdout
    (life,) = done.manifest.lives
    assert life.steps_counted == 24


@pytest.mark.forked
def test_a_signal_handler_of_the_script_is_the_scripts(alone):
    before = "import signal; signal.signal(signal.SIGTERM, lambda *a: seen.append('mine'))"
    after = "print('handled', seen, signal.set_wakeup_fd(-1), flush=True)"
    done = alone(before=before, each="os.kill(os.getpid(), signal.SIGTERM) if step == 8 else None", after=after)
    assert done.code == 0, done.stderr
    assert "handled ['mine'] -1" in done.stdout
    assert done.records()[0].status == "ok"


@pytest.mark.forked
def test_an_exception_in_our_hooks_ends_recording_and_nothing_else(alone, tmp_path):
    # GIVEN a spool that is taken away in the middle of the window
    spools = tmp_path / "spools"
    spools.mkdir()
    each = f"""
    import pathlib, shutil
    if step == 8:
        [shutil.rmtree(folder) for folder in pathlib.Path({str(spools)!r}).glob('rankscope_*')]"""
    after = "print('trained', torch._C._autograd._profiler_enabled(), flush=True)"
    assert "trained False" in alone(each=each, after=after, extra_env={"TMPDIR": str(spools)}).stdout


@pytest.mark.forked
@pytest.mark.parametrize("step", [1, 8, 12])  # before the window, inside it, and where it closes
def test_a_disk_that_takes_nothing_more(alone, step):
    # GIVEN a process whose writes to files fail from this step on, the native ones as well
    each = f"""
    if step == {step}:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))"""
    done = alone(each=each, after="print('trained', torch._C._autograd._profiler_enabled(), flush=True)")
    assert done.code == 0, done.stderr
    assert "trained False" in done.stdout


@pytest.mark.forked
@pytest.mark.parametrize(("seconds", "ends"), [(599, None), (601, "the window had recorded for 600 s, its limit")])
def test_a_window_whose_steps_stop_coming_ends_at_its_limit(alone, seconds, ends):
    # GIVEN an evaluation of ten minutes in step 8 of a window of steps 6 to 11, by the clock that the window goes by
    each = f"""
    if step == 0:
        import time, types, rankscope.agent.windows.recording as recording
        passed = [0.0]
        more = {{name: getattr(time, name) for name in ("perf_counter_ns", "time_ns", "monotonic_ns")}}
        recording.time = types.SimpleNamespace(monotonic=lambda: passed[0], **more)
    if step == 8:
        passed[0] += {seconds}"""
    done = alone(each=each, after="print('trained', torch._C._autograd._profiler_enabled(), flush=True)")
    assert done.code == 0, done.stderr
    assert "trained False" in done.stdout
    (record,) = done.records()
    assert record.trace is not None
    if ends is None:
        assert (record.status, record.last_step) == ("ok", 11)
    else:
        # closed within step 9, before it is over: what is whole is step 8
        assert (record.status, record.last_step) == ("partial", 8)
        assert record.reason.startswith(ends)


@pytest.mark.forked
def test_a_script_that_closes_all_descriptors_finds_its_own_files_as_it_wrote_them(alone, tmp_path):
    # GIVEN a script that closes, inside of a window, what it knows nothing of, and opens its own files then
    data = tmp_path / "data"
    data.mkdir()
    each = f"""
    if step == 8:
        os.closerange(3, 256)
        files = [open({str(data)!r} + f"/{{n}}", "wb", buffering=0) for n in range(20)]
    if step >= 8:
        [file.write(b"x") for file in files]"""
    done = alone(each=each, after="[file.write(b'.') for file in files]; print('trained', flush=True)")
    assert done.code == 0, done.stderr
    assert "trained" in done.stdout
    assert {path.read_bytes() for path in data.iterdir()} == {b"x" * 16 + b"."}
    (record,) = done.records()
    assert record.status == "ok"


TRAP = "open({marker!r}, 'a').write({name!r} + chr(10))\nraise ImportError('of the script, and for others')\n"


def test_no_module_of_the_scripts_own_folder_is_taken_for_one_that_we_need(start, finish, tmp_path):
    # GIVEN a script beside which lie modules that are called like those of the standard library, but for those that
    # torch needs itself
    script, marker = tmp_path / "train.py", tmp_path / "marker"
    script.write_text(textwrap.dedent(TRAIN).format(before="", each="", after="print('trained', flush=True)"))
    known = "import torch, torch._dynamo, sys; print(*sys.modules)"
    torchs = set(
        subprocess.run([sys.executable, "-c", known], capture_output=True, text=True, check=True).stdout.split()
    )
    for name in filter(importlib.util.find_spec, sys.stdlib_module_names - torchs):  # without those of other systems
        (tmp_path / f"{name}.py").write_text(TRAP.format(marker=str(marker), name=name))
    assert len(list(tmp_path.glob("*.py"))) > 30
    settings = flags_of(f"run.dir={tmp_path / 'RUN'}", "schedule.skip_first=3", "analysis.enabled=false")
    elsewhere = Path("/")  # for the launcher, which is not what is tried here
    theirs = finish(start([*TORCHRUN, script], cwd=elsewhere))
    by_torch = marker.read_text() if marker.exists() else ""
    ours = finish(start([*RANKSCOPE, *settings, script], cwd=elsewhere))
    assert (theirs.code, ours.code) == (0, 0), ours.stderr
    assert "trained" in ours.stdout
    assert [record.status for record in ours.records()] == ["ok"]
    assert (marker.read_text() if marker.exists() else "") == by_torch * 2


@pytest.mark.forked
@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser can become somebody else")
@pytest.mark.parametrize("step", [1, 8])
def test_a_script_that_gives_up_its_rights(alone, step):
    each = f"os.setresuid(54321, 54321, 54321) if step == {step} else None"
    done = alone(each=each, after="print('trained', torch._C._autograd._profiler_enabled(), flush=True)")
    assert done.code == 0, done.stderr
    assert "trained False" in done.stdout

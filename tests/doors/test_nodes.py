"""Two nodes as network namespaces with separate host names and clocks, and one launcher in each."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from doors.doors import JOBS, PYTHON, RANKSCOPE, TORCHRUN
from rankscope.analysis.pipeline import analyze
from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.rundir.layout import RunDir
from rankscope.trace.files.load import load_traces
from support.ending import end
from support.launching import environment, flags_of, must_tell
from support.node import until

pytestmark = [pytest.mark.doors, pytest.mark.long, pytest.mark.timeout(1200)]
ENDS_WITHIN_S = 600.0
APART_S = 5
SETTINGS = [f"schedule.{key}" for key in ("skip_first=2", "wait=1", "warmup=1", "active=5")] + [
    "analysis.enabled=false"
]
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
  int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += APART;
  return failed;
}
"""
"""A wall clock that is wrong by whole seconds; the others are those of the machine."""


def _missing() -> str | None:
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        return "network namespaces need root, ip and unshare"
    if not shutil.which("gcc"):
        return "a clock that is wrong is compiled with gcc"
    made = subprocess.run(["ip", "netns", "add", f"rk{os.getpid()}"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", f"rk{os.getpid()}"], capture_output=True, check=False)
    return None if made.returncode == 0 else "no network namespace can be made here"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[list[str]]]:
    """What stands before a command that is to run on the first or on the second of two nodes."""
    if (why := _missing()) is not None:
        pytest.skip(why)

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    (tmp_path / "clock.c").write_text(CLOCK)
    library = tmp_path / "clock.so"
    compiled = ["gcc", "-shared", "-fPIC", f"-DAPART={APART_S}", "-o", library, tmp_path / "clock.c", "-ldl"]
    subprocess.run(compiled, check=True)
    spaces = [f"rk{os.getpid()}{name}" for name in "ab"]
    names = Path("/etc/netns")
    try:
        for space in spaces:
            ip("netns", "add", space)
            (names / space).mkdir(parents=True)
            (names / space / "hosts").write_text("127.0.0.1 localhost\n10.77.0.1 node-a\n10.77.0.2 node-b\n")
        ip("link", "add", "rk0", "netns", spaces[0], "type", "veth", "peer", "name", "rk0", "netns", spaces[1])
        for number, space in enumerate(spaces, 1):
            ip("-n", space, "addr", "add", f"10.77.0.{number}/24", "dev", "rk0")
            ip("-n", space, "link", "set", "rk0", "up")
            ip("-n", space, "link", "set", "lo", "up")
        begin = 'hostname "$0" && exec "$@"'
        yield [
            ["ip", "netns", "exec", space, "unshare", "--uts", "sh", "-c", begin, f"node-{name}", "env", *changes]
            for space, name, changes in zip(spaces, "ab", ([], [f"LD_PRELOAD={library}"]), strict=True)
        ]
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
            shutil.rmtree(names / space, ignore_errors=True)


def on_each(nodes: list[list[str]], commands: list[list[str]], logs: Path, env: dict[str, str]) -> list[str]:
    """Run a command on each node at the same time; all have to end well. What they said."""
    logs.mkdir()
    processes = []
    for number, (before, command) in enumerate(zip(nodes, commands, strict=True)):
        with (logs / f"{number}.log").open("w") as log:
            processes.append(subprocess.Popen([*before, *command], env=env, stdout=log, stderr=log))
    said = lambda: [(logs / f"{n}.log").read_text(errors="replace")[-3000:] for n in range(len(nodes))]  # noqa: E731
    try:
        assert [process.wait(ENDS_WITHIN_S) for process in processes] == [0] * len(nodes), said()
    finally:
        for process in processes:
            end(process)
    return said()


def job(door: str, run: Path, out: Path, *settings: str) -> list[str]:
    """The same job on both nodes."""
    ours = flags_of(f"run.dir={run}", *SETTINGS, *settings)
    place = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "job7", "--rdzv-backend", "c10d"]
    place += ["--rdzv-endpoint", "10.77.0.1:29555"]
    command = {
        "run": [*RANKSCOPE, "run", *ours, *place],
        "exec": [*TORCHRUN[:3], *place, "--no-python", *RANKSCOPE, "exec", *ours, PYTHON],
    }[door]
    return [*command, str(JOBS / "ranked.py"), str(out), "ok", "0"]


def test_two_nodes_without_a_common_folder(nodes: list[list[str]], tmp_path: Path) -> None:
    # GIVEN a job of which each node has a run directory on its own disk
    parts, env = [RunDir(tmp_path / name / "run") for name in "ab"], environment() | {"GLOO_SOCKET_IFNAME": "rk0"}
    jobs = [job("run", part.path, tmp_path / "out", "gather.timeout_s=30") for part in parts]
    on_each(nodes, jobs, tmp_path / "jobs", env)
    for part in parts:
        until(part.manifest.exists)
    # WHEN the one takes the part of the other over the network of the job
    run, env = parts[0], env | {"RANKSCOPE_COLLECT_KEY": "0123456789abcdef"}
    listens = [*RANKSCOPE, "collect", str(run.path), "--listen", "10.77.0.1:29511", "--nodes", "2"]
    sends = [*RANKSCOPE, "collect", str(parts[1].path), "--to", "10.77.0.1:29511"]
    on_each(nodes, [listens, sends], tmp_path / "collects", env)
    # THEN it is the run of a shared folder
    manifest = from_json(RunManifest, run.manifest.read_bytes())
    (window,) = manifest.windows
    assert [(r.rank, r.host, r.status) for r in window.records] == [(0, "node-a", "ok"), (1, "node-b", "ok")]
    report = analyze(load_traces([run.path], cache=False), manifest, hta=False)
    must_tell(report, "straggler", [1], report.verdict.cause)
    assert subprocess.run([*RANKSCOPE, "verify", str(run.path)], env=env, check=False).returncode == 0


@pytest.mark.parametrize("door", ["run", "exec"])
def test_two_nodes_whose_clocks_are_apart(door: str, nodes: list[list[str]], tmp_path: Path) -> None:
    run, env = RunDir(tmp_path / "RUN"), environment() | {"GLOO_SOCKET_IFNAME": "rk0"}
    on_each(nodes, [job(door, run.path, tmp_path / "out")] * 2, tmp_path / "logs", env)
    until(run.manifest.exists)
    manifest = from_json(RunManifest, run.manifest.read_bytes())
    assert manifest.hosts == ["node-a", "node-b"]
    (window,) = manifest.windows
    assert [(r.rank, r.status, r.first_step, r.last_step) for r in window.records] == [
        (rank, "ok", 4, 8) for rank in (0, 1)
    ]
    # the wall clocks differ by seconds, which the ends of collectives show
    samples = {record.host: record.clock[0] for record in window.records}
    shift = [samples[f"node-{name}"].realtime_ns - samples[f"node-{name}"].monotonic_ns for name in "ab"]
    assert abs(shift[1] - shift[0] - APART_S * 1e9) < 1e9
    report = analyze(load_traces([run.path], cache=False), manifest, hta=False)
    offset = {record.host: report.clock.offsets_us[str(record.rank)] for record in window.records}
    assert report.clock.method == "collective_ends"
    assert abs(offset["node-b"] - offset["node-a"] + APART_S * 1e6) < 1e6
    must_tell(report, "straggler", [1], report.verdict.cause)

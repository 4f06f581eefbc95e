"""One job of many real ranks on one machine: recorded, reduced on each of its nodes, and reported.

    python benchmarks/many_ranks.py --ranks 1024 [--nodes 16] [--layers 4] [--out FOLDER]

Each node is a launcher with a host name (where the system permits), a folder for temporary files and ranks of its own;
all share the run directory. ``sleeping.py`` is the job: gloo, tensor parallel groups of 8 in a data parallel job, one
late rank. Each node converts the traces of its ranks, ships one object, and keeps the traces of the suspects only
(``gather.keep=suspects``). The traces that are removed are kept here by hard links, so that the report from objects can
be compared with that from all traces.

Where memory does not suffice for so many processes, ``--forked`` starts them as the tests do, from a process that has
loaded torch, and they share its memory.

What a late rank costs is measured on steps of the same job with and without it. Where many ranks share a core, it costs
less than its lateness: it computes on cores that are free meanwhile. The replay does not know that.

It proves that the recording, the helpers, the files and the report of so many processes work together: agreement on the
window, memory, open files, what is left in the end. It proves nothing about times of a cluster: all ranks share the
cores of one machine (they mostly sleep, so that the planted lateness is longer than they wait for a core), one clock,
one file system and the loopback device. Exit code 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sleeping import DP_CALLS

from support.forking.client import Forked

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"

FIRST, ACTIVE, WELL, STEPS = 10, 20, 42, 48
"""Steps: the first of the window, how many it has, the first without the fault, and all."""
COST_WITHIN = 0.1
"""Of the reported cost from what unrecorded steps of the same job say, beyond the scatter of these steps and the
report's own error: recording changes steps, and is no part of the truth."""
LOOK_S = 2.0
OURS = ("rankscope.node", "rankscope.reduced", "rankscope.cli", "rankscope run", "rankscope analyze")
CLONE_NEWUTS = 0x04000000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--layers", type=int, default=4, help="two calls each, and two of the data parallel groups")
    parser.add_argument("--plain", action="store_true", help="no torch.optim: 70 MB and 2 s less of each rank")
    parser.add_argument("--sleep-ms", type=float, default=1500.0, help="of a step")
    parser.add_argument("--stall-ms", type=float, default=300.0, help="by which the late rank's input is late")
    parser.add_argument("--limit-s", type=float, default=480.0, help="of the job, with its report")
    parser.add_argument("--out", type=Path, default=Path("many_ranks"), help="for report, logs and what was found")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/many_ranks"), help="replaced")
    parser.add_argument(
        "--forked", action="store_true", help="launchers and ranks are forked from a process of their node with torch"
    )
    parser.add_argument("--torchrun", action="store_true", help="without rankscope: whether the machine can do it")
    parser.add_argument("--no-whole", action="store_true", help="do not compare with the report from all traces")
    parser.add_argument("-S", "--set", action="append", default=[], help="of rankscope run")
    if sys.argv[1:2] == ["--node"]:
        become(sys.argv[2], sys.argv[3:])
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that no rank remains
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(machine(args), flush=True)
    shutil.rmtree(args.scratch, ignore_errors=True)
    args.scratch.mkdir(parents=True)
    args.out.mkdir(parents=True, exist_ok=True)
    found = run(args)
    (args.out / "found.json").write_text(json.dumps(found, indent=1))
    for log in args.scratch.glob("*.log"):
        if log.stat().st_size:
            text = log.read_text(errors="replace")
            (args.out / log.name).write_text(
                text[:20_000] + ("\n[...]\n" + text[-20_000:] if len(text) > 20_000 else "")
            )
    if args.torchrun or found.get("failed"):
        print(json.dumps(found, indent=1))
        return int(bool(found.get("failed")))
    wrong = check(args, found)
    (args.out / "found.json").write_text(json.dumps(found, indent=1))
    for line in wrong:
        print(f"wrong: {line}")
    return int(bool(wrong))


def machine(args: argparse.Namespace) -> str:
    limits = [f"{name} {Path(path).read_text().strip()}" for name, path in (
        ("pids.max", "/sys/fs/cgroup/pids.max"), ("threads-max", "/proc/sys/kernel/threads-max"),
        ("somaxconn", "/proc/sys/net/core/somaxconn"), ("ports", "/proc/sys/net/ipv4/ip_local_port_range"),
    ) if Path(path).exists()]  # fmt: skip
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    cores = len(os.sched_getaffinity(0))
    return (
        f"{args.ranks} ranks of {args.nodes} nodes on {cores} cores, {memory_mb('MemTotal') / 1e3:.0f} GB; open files "
        f"{files}, processes {resource.getrlimit(resource.RLIMIT_NPROC)[0]}, {', '.join(limits)}"
    )


def memory_mb(field: str) -> float:
    text = Path("/proc/meminfo").read_text()
    found = re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) / 1e3 if found else 0.0


def become(name: str, words: list[str]) -> None:
    """Take the host name of a node, where that is permitted, and become its launcher."""
    if ctypes.CDLL(None).unshare(CLONE_NEWUTS) == 0:
        with contextlib.suppress(OSError):
            socket.sethostname(name)
    os.execv(sys.executable, [sys.executable, *words])


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run the job. Return its times, what it took, and how it ended."""
    scratch, culprit = args.scratch, args.ranks // 3
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launcher = ["-m", "torch.distributed.run"]
    if not args.torchrun:
        settings = [f"run.dir={scratch / 'run'}", f"schedule.skip_first={FIRST - 1}", "schedule.wait=0"]
        settings += ["schedule.warmup=1", f"schedule.active={ACTIVE}", "gather.keep=suspects", *args.set]
        launcher = ["-m", "rankscope", "run", *(word for one in settings for word in ("-S", one))]
    place = ["--nnodes", str(args.nodes), "--nproc-per-node", str(args.ranks // args.nodes), "--rdzv-id", "many"]
    place += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    job = [str(HERE / "sleeping.py"), "--layers", str(args.layers), "--sleep-ms", str(args.sleep_ms)]
    job += ["--steps", str(STEPS), "--stall-ms", str(args.stall_ms), "--stalled", "0", str(WELL)]
    job += ["--plain"] * args.plain
    job += ["--stalled-rank", str(culprit), "--times", str(scratch / "times.json")]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TORCH_GLOO_LAZY_INIT": "1", "GLOO_SOCKET_IFNAME": "lo",
        "KINETO_LOG_LEVEL": "6", "MALLOC_ARENA_MAX": "2", "COLUMNS": "100",
    }  # fmt: skip
    with ThreadPoolExecutor(8) as starting:
        servers = list(starting.map(lambda n: server(scratch, n, environment), range(args.nodes * args.forked)))
    begin, watch, nodes = time.time(), Watch(scratch), list[Any]()
    try:
        for number in range(args.nodes):
            own = scratch / f"node{number:02d}"
            own.mkdir(exist_ok=True)
            words = [*launcher, *place, "--rdzv-conf", f"is_host={int(number == 0)},join_timeout=600", *job]
            with (scratch / f"node{number:02d}.log").open("w") as log:
                how: dict[str, Any] = {"env": environment | {"TMPDIR": str(own)}, "stdout": log, "stderr": log}
                how["start_new_session"] = True
                node: Any
                if servers:
                    node = Forked([sys.executable, *words], server=str(own / "forks"), **how)
                else:
                    node = subprocess.Popen([sys.executable, __file__, "--node", own.name, *words], **how)
                nodes.append(node)
        ended: dict[int, float] = {}
        while len(ended) < len(nodes) and time.time() < begin + args.limit_s:
            ended |= {n: time.time() - begin for n, p in enumerate(nodes) if n not in ended and p.poll() is not None}
            time.sleep(0.1)
    finally:
        peak = watch.close()
        over = [process for process in nodes if process.poll() is None]
        for process in over:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if over:
            end_rest(str(scratch))
        for process in servers:
            process.kill()
    found: dict[str, Any] = {
        "ranks": args.ranks, "nodes": args.nodes, "calls": 2 * args.layers + DP_CALLS, "culprit": culprit,
        "codes": Counter(process.returncode for process in nodes), "peak": peak,
        "failed": bool(over) or any(process.returncode for process in nodes),
        "launchers_ended_s": sorted(round(s, 1) for s in ended.values()),
    }  # fmt: skip
    if (scratch / "times.json").exists():
        times = json.loads((scratch / "times.json").read_text())
        steps = times["ms"]  # the first is that of step 1
        found["s"] = {
            "until rank 0 began": times["began"] - begin, "until all had joined": times["joined"] - begin,
            "until trained": times["ended"] - begin, "until the last launcher ended": max(ended.values(), default=-1),
        }  # fmt: skip
        for name in ("run.json", "report/report.json", "kept.json"):
            if (path := scratch / "run" / name).exists():
                found["s"][f"until {name}"] = path.stat().st_mtime - begin
        found["steps_ms"] = steps
        of_step = dict(enumerate(steps, 1))
        groups = {
            "healthy": range(WELL + 1, STEPS), "recorded": range(FIRST, FIRST + ACTIVE),
            "late": [*range(3, FIRST - 1), *range(FIRST + ACTIVE + 2, WELL)],
        }  # fmt: skip
        for name, members in groups.items():
            values = sorted(of_step[step] for step in members)
            found[f"{name}_ms"] = statistics.median(values)
            found[f"{name}_scatter_ms"] = statistics.median(abs(v - found[f"{name}_ms"]) for v in values)
        found |= {name: times[name] for name in ("cpu_s", "private_mb", "compiler")}
    return found


def server(scratch: Path, number: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the process of a node that its launcher and ranks are forked from, and wait until it is ready."""
    own = scratch / f"node{number:02d}"
    own.mkdir()
    words = [sys.executable, __file__, "--node", own.name, "-m", "support.forking.server", str(own / "forks")]
    path = os.pathsep.join([str(TESTS), *filter(None, [environment.get("PYTHONPATH")])])
    log = (scratch / f"server{number:02d}.log").open("w")
    process = subprocess.Popen(
        words, env=environment | {"PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
    )
    assert process.stdout is not None
    if process.stdout.readline().strip() != b"ready":
        raise SystemExit(f"no process to fork from: {Path(log.name).read_text()[-2000:]}")
    return process


def end_rest(mark: str) -> None:
    """Kill what a launcher that was killed left: the processes that name this folder, or work in it."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            texts = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            if int(path.name) != os.getpid() and f"TMPDIR={mark}".encode() in texts:
                os.kill(int(path.name), signal.SIGKILL)


class Watch:
    """Look at memory and processes while the job runs, and keep the traces that nodes hold by hard links."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.traces = scratch, scratch / "traces"
        self.traces.mkdir()
        self.before, self.least = memory_mb("MemAvailable"), memory_mb("MemAvailable")
        self.peaks: Counter[str] = Counter()
        self.most = {"processes": 0, "threads": 0, "files_of_one": 0}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._look), threading.Thread(target=self._keep)]
        for thread in self._threads:
            thread.start()

    def close(self) -> dict[str, Any]:
        self._over.set()
        for thread in self._threads:
            thread.join()
        return {"job_mb": round(self.before - self.least), **self.most, "mb": dict(self.peaks)}

    def _keep(self) -> None:
        while not self._over.wait(0.2):
            for path in self.scratch.glob("node*/rankscope*/held_*.trace.json.gz"):
                with contextlib.suppress(OSError):
                    os.link(path, self.traces / path.name)

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self.least = min(self.least, memory_mb("MemAvailable"))
            processes = threads = 0
            for path in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if str(self.scratch) not in words and "rankscope" not in words:
                        continue
                    processes += 1
                    status = (path / "status").read_text()
                    threads += int(re.findall(r"Threads:\s+(\d+)", status)[0])
                    name = next((n for n in OURS if n in words), "sleeping.py" if "sleeping.py" in words else "other")
                    if "--nnodes" in words:
                        name = "launcher"
                        self.most["files_of_one"] = max(
                            self.most["files_of_one"], sum(1 for _ in (path / "fd").iterdir())
                        )
                    high = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1000
                    self.peaks[name] = max(self.peaks[name], high)
            self.most["processes"] = max(self.most["processes"], processes)
            self.most["threads"] = max(self.most["threads"], threads)


def check(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    """Print what is there, and return what is not as it should be."""
    run_dir, wrong = args.scratch / "run", []
    window = run_dir / "attempt_0" / "window_000"
    files = [path for path in run_dir.rglob("*") if path.is_file()]
    kinds = Counter(
        re.sub(r"\d+", "N", str(p.relative_to(run_dir).parent / "*") + "".join(p.suffixes[-2:])) for p in files
    )
    objects = list(window.glob("columns/*.columns"))
    size = sum(path.stat().st_size for path in objects)
    manifest = json.loads((run_dir / "run.json").read_text())
    found |= {
        "files": dict(kinds), "objects": len(objects), "bytes_a_rank": size / args.ranks,
        "run_json_mb": (run_dir / "run.json").stat().st_size / 1e6,
        "hosts": len(manifest["hosts"]),
        "notes": manifest.get("notes", [])[:20],
        "step_log_bytes_a_rank": sum(p.stat().st_size for p in run_dir.glob("attempt_0/pulse/*")) / args.ranks,
        "left": [str(p.relative_to(args.scratch)) for p in args.scratch.glob("node*/*")][:20],
    }  # fmt: skip
    goal = 100e3 if found["calls"] <= 10 else 1e6
    if len(objects) != args.nodes:
        wrong.append(f"{len(objects)} objects of {args.nodes} nodes")
    if found["bytes_a_rank"] > goal:
        wrong.append(f"{found['bytes_a_rank']:.0f} bytes a rank, aim {goal:.0f}")
    report = run_dir / "report" / "report.json"
    if not report.exists():
        return [*wrong, "no report"]
    shutil.copy(report, args.out / "report.json")
    shutil.copy(report.with_suffix(".html"), args.out / "report.html")
    told = json.loads(report.read_text())
    verdict = told["verdict"]
    finding = next((f for f in told["findings"] if f["ranks"] == [found["culprit"]]), None)
    truth = found["late_ms"] - found["healthy_ms"]
    found |= {"verdict": verdict["sentence"], "cause": finding and finding["kind"], "truth_ms": truth}
    found["cost_ms"] = finding and finding["cost_ms_per_step"]
    if verdict["ranks"] != [found["culprit"]] or finding is None or finding["kind"] != "input_stall":
        wrong.append(f"not input_stall of rank {found['culprit']}: {verdict['sentence']}")
    else:
        error = math.hypot(verdict["cost_error_ms"] or 0.0, found["healthy_scatter_ms"], found["late_scatter_ms"])
        found["cost_error_ms"], found["truth_scatter_ms"] = verdict["cost_error_ms"], error
        if abs(found["cost_ms"] - truth) > COST_WITHIN * truth + error:
            wrong.append(f"cost {found['cost_ms']:.0f} ms, {truth:.0f} by the steps that were not recorded")
    again, mb = timed(args, ["analyze", str(run_dir), "--output", str(args.scratch / "from_objects")])
    found["s"]["report again, from objects"], found["peak"]["mb"]["report from objects"] = again, mb
    if not args.no_whole:
        wrong += whole(args, found, run_dir)
    print(table(found))
    return wrong


def whole(args: argparse.Namespace, found: dict[str, Any], run_dir: Path) -> list[str]:
    """Make the report from all traces, at the same path, and compare."""
    aside, traces = args.scratch / "aside", list((args.scratch / "traces").glob("held_*"))
    if len(traces) != args.ranks:
        return [f"{len(traces)} traces were held of {args.ranks}"]
    shutil.copytree(run_dir, aside, copy_function=os.link)
    run_dir.rename(args.scratch / "run_of_objects")
    aside.rename(run_dir)
    for window in run_dir.glob("attempt_0/window_000"):
        shutil.rmtree(window / "columns")
        for path in [*window.glob("*.trace.json.gz"), *window.glob("*.parquet")]:
            path.unlink()
        for path in traces:
            rank = int(path.name.split("_")[-1].split(".")[0])
            os.link(path, window / f"rank_{rank:05d}.trace.json.gz")
    found["trace_bytes_a_rank"] = sum(path.stat().st_size for path in traces) / args.ranks
    seconds, mb = timed(args, ["analyze", str(run_dir), "--output", str(args.scratch / "from_traces")])
    found["s"]["report from all traces"], found["peak"]["mb"]["report from traces"] = seconds, mb
    reports = [(args.scratch / name / "report.json").read_text() for name in ("from_objects", "from_traces")]
    if reports[0] == reports[1]:
        found["equal"] = "to the last byte"
        return []
    differing = differences(*map(json.loads, reports))
    found["equal"] = f"but for {len(differing)} values: {differing[:12]}"
    return [] if all(GONE_KEY.search(path) for path, _, _ in differing) else [f"reports differ: {differing[:12]}"]


GONE_KEY = re.compile(r"\.(?:path|sha256|columns|trace)$")


def differences(one: Any, other: Any, path: str = "") -> list[tuple[str, str, str]]:
    if isinstance(one, dict) and isinstance(other, dict):
        return [d for key in sorted({*one, *other}) for d in differences(one.get(key), other.get(key), f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [d for n, (a, b) in enumerate(zip(one, other, strict=True)) for d in differences(a, b, f"{path}[{n}]")]
    return [] if one == other else [(path, str(one)[:80], str(other)[:80])]


def timed(args: argparse.Namespace, words: list[str]) -> tuple[float, float]:
    """Run a verb of rankscope. Return seconds, and the most memory of one of its processes in MB."""
    begin, log = time.perf_counter(), args.scratch / f"{words[0]}_{Path(words[-1]).name}.log"
    with log.open("w") as stream:
        process = subprocess.Popen([sys.executable, "-m", "rankscope", *words], stdout=stream, stderr=stream)
        _, code, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    shutil.copy(log, args.out / log.name)
    if process.returncode:
        raise SystemExit(f"{words}: exit code {process.returncode}\n{log.read_text()[-3000:]}")
    return time.perf_counter() - begin, usage.ru_maxrss / 1e3


def table(found: dict[str, Any]) -> str:
    rows = [
        ("ranks, nodes, hosts", f"{found['ranks']}, {found['nodes']}, {found['hosts']}"),
        ("calls a step, steps", f"{found['calls']}, {ACTIVE}"),
        ("step, ms (median deviation): healthy, late, recorded", ", ".join(
            f"{found[f'{k}_ms']:.0f} ({found[f'{k}_scatter_ms']:.0f})" for k in ("healthy", "late", "recorded")
        )),
        ("verdict", found["verdict"]),
        ("cause, cost, truth", f"{found['cause']}, {found['cost_ms']}, {found['truth_ms']:.0f}"),
        ("rank 0: CPU s, private MB in the end", f"{found['cpu_s']:.1f}, {found['private_mb']:.0f}"),
        ("objects, bytes a rank", f"{found['objects']}, {found['bytes_a_rank']:.0f}"),
        ("trace, bytes a rank", f"{found.get('trace_bytes_a_rank', 0):.0f}"),
        ("report of traces equal", found.get("equal", "not compared")),
        ("files", str(found["files"])),
        ("MB, of all while they ran", f"{found['peak']['job_mb']}"),
        *((f"MB, {name}", f"{mb:.0f}") for name, mb in found["peak"]["mb"].items()),
        *((f"s, {name}", f"{s:.1f}") for name, s in found["s"].items()),
    ]  # fmt: skip
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)


if __name__ == "__main__":
    sys.exit(main())

"""Two nodes whose link to the store of the run directory is slow: are steps longer while traces are shipped?

    sudo python benchmarks/slow_store.py [--rate 512kbit] [--seconds 75] [--rounds 4] [--out results.json]

Each node is a network namespace. Ranks talk over a link of full speed; the store, moto's S3 server in a third
namespace, is reached over links that ``tc`` limits (token bucket). The job (gloo, DDP, one rank a node) notes when each
step ends, and this script when the link of rank 0 to the store carries something.

A round is the job under torchrun, under rankscope with the store, and under torchrun again, as a control. Each period
of shipping gives a ratio: the median step in it to that of the steps before and after it, for as long, of the same job.
The controls give the ratio of the same seconds. The interval of a median of ratios is that of the order statistics.

It goes on with what ``--out`` has. Needs root, ip, tc, moto[server], s3fs. However it ends, all processes in the
namespaces are killed, and the namespaces removed with their links and limits; what a killed one left, the next removes.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__)
MODES = ("torchrun", "store", "torchrun again")
SPACES = {name: f"rkslow{name}" for name in "abs"}
FIRST, ACTIVE, EVERY = 100, 5, 1000
"""Steps: the first window, its length, and from one window to the next."""
SETTLED = 30
"""Steps after a window that are not counted, nor are those of the window and before it."""
DEVICE_S = 0.003
"""Of a step, in which no core works for the rank: the helper of a node has that much of one."""
LIMIT_S = 900.0
"""Of a job."""
LOOK_S = 0.1
BUSY_BYTES = 1000
"""Between two looks at the link to the store: more than a handshake."""
STARTS_S, GAP_S, LEAST_S = 2.0, 2.0, 2.0
"""Before bytes flow, the process that ships starts; a period has no such gap, and is not shorter."""
SERVES = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("0.0.0.0", 9000, DomainDispatcherApplication(create_backend_app), threaded=True)
server.serve_forever()
"""


def job(seconds: float, path: Path) -> None:
    """Train, and write when each step has ended (seconds, monotonic, the same clock on all nodes of one machine)."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ends, begin = [], time.monotonic()
    last = torch.zeros(1)
    while not last:
        model(torch.randn(64, 256)).pow(2).mean().backward()
        time.sleep(DEVICE_S)
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.monotonic())
        if len(ends) % 100 == 0:  # rank 0 decides for both
            last.fill_(ends[-1] - begin > seconds)
            dist.broadcast(last, 0)
    path.with_name(f"{path.name}{dist.get_rank()}").write_text(json.dumps(ends))
    del model
    dist.destroy_process_group()


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def within(node: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", SPACES[node], *words]


@contextlib.contextmanager
def network(rate: str) -> Iterator[None]:
    """a and b on one link, each with a slow one to s."""
    remove()
    try:
        for space in SPACES.values():
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        for one, other, net in (("a", "b", 1), ("a", "s", 2), ("b", "s", 3)):
            ends = [(one, f"rk{other}", f"10.78.{net}.1/24"), (other, f"rk{one}", f"10.78.{net}.2/24")]
            ip("link", "add", ends[0][1], "netns", SPACES[one], "type", "veth", "peer", "name", ends[1][1],
               "netns", SPACES[other])  # fmt: skip
            for node, device, address in ends:
                ip("-n", SPACES[node], "addr", "add", address, "dev", device)
                ip("-n", SPACES[node], "link", "set", device, "up")
                if "s" in (one, other):
                    shaped = f"tc qdisc add dev {device} root tbf rate {rate} burst 16kb latency 500ms"
                    subprocess.run(within(node, *shaped.split()), check=True)
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl+C would leave the rest
        remove()


def remove() -> None:
    """Remove the namespaces, and all processes in them: launchers, ranks, helpers and the store."""
    for space in SPACES.values():
        end_all(space)
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def end_all(space: str) -> None:
    """Kill until none is left: those that are killed may just have started others."""
    while True:
        told = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
        if not told.stdout.split():
            return
        for pid in map(int, told.stdout.split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


@contextlib.contextmanager
def store() -> Iterator[None]:
    """The server, of the lowest priority: in truth it is on another machine."""
    words = within("s", "nice", "-n", "19", sys.executable, "-c", SERVES)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            make = "import s3fs; s3fs.S3FileSystem().mkdir('bucket')"
            env, deadline = os.environ | credentials("a"), time.monotonic() + 600
            while subprocess.run(
                within("a", sys.executable, "-c", make), env=env, capture_output=True, check=False
            ).returncode:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise SystemExit("no S3 server: pip install 'moto[server]' s3fs")
            yield
        finally:
            server.kill()


def credentials(node: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://10.78.{2 if node == 'a' else 3}.2:9000",
    }  # fmt: skip


class Carried:
    """When the link of rank 0's node to the store carried something, as (begin, end) in monotonic seconds."""

    def __init__(self) -> None:
        self.busy: list[tuple[float, float]] = []
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        with subprocess.Popen(within("a", "sleep", "infinity")) as within_a:
            try:
                before, began = None, time.monotonic()
                while not self._over.wait(LOOK_S):
                    now, count = time.monotonic(), _moved(within_a.pid)
                    if before is not None and count - before > BUSY_BYTES:
                        self.busy.append((began, now))
                        self.bytes += count - before
                    before, began = count, now
            finally:
                within_a.kill()

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def _moved(pid: int) -> int:
    """Bytes that the namespace of a process has sent to the store, and read back from it (proc_pid_net(5))."""
    lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
    counts = next((line.split(":")[1].split() for line in lines if line.strip().startswith("rks:")), ["0"] * 9)
    return int(counts[0]) + int(counts[8])


def launch(mode: str, number: int, seconds: float, folder: Path) -> dict[str, Any]:
    """One job: when the steps of rank 0 ended, and when its node shipped, in seconds from the first step's end."""
    place = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", f"job{number}", "--rdzv-backend", "c10d"]
    place += ["--rdzv-endpoint", "10.78.1.1:29555"]
    settings = [f"run.dir=s3://bucket/run{number}", "analysis.enabled=false", f"schedule.skip_first={FIRST}"]
    settings += [f"schedule.active={ACTIVE}", f"schedule.every={EVERY}", "budget.windows=1000"]
    ours = [word for setting in settings for word in ("-S", setting)]
    launcher = ["rankscope", "run", *ours] if mode == "store" else ["torch.distributed.run"]
    script = [str(HERE), "--job", str(folder / "ends"), "--seconds", str(seconds)]
    carried, processes = Carried(), []
    try:
        for node, device in (("a", "rkb"), ("b", "rka")):
            env = os.environ | credentials(node) | {"GLOO_SOCKET_IFNAME": device, "OMP_NUM_THREADS": "1"}
            env["TMPDIR"] = str(folder)
            with (folder / f"{node}.log").open("w") as log:
                own = ["--rdzv-conf", f"is_host={int(node == 'a')}", "--local-addr", f"10.78.1.{'ab'.index(node) + 1}"]
                words = [sys.executable, "-m", *launcher, *place, *own, *script]
                processes.append(subprocess.Popen(within(node, *words), env=env, stdout=log, stderr=log))
        codes = [process.wait(LIMIT_S) for process in processes]
    finally:
        carried.close()
        for node in "ab":
            end_all(SPACES[node])
    if any(codes) or (mode == "store" and not carried.bytes):  # without a store the job runs unrecorded
        raise SystemExit(f"{mode}: {codes}\n" + "".join((folder / f"{n}.log").read_text()[-3000:] for n in "ab"))
    ends = json.loads((folder / "ends0").read_text())
    busy = [(begin - ends[0], end - ends[0]) for begin, end in carried.busy]
    return {"mode": mode, "ends": [end - ends[0] for end in ends], "busy": busy, "bytes": carried.bytes}


Period = tuple[float, float]
"""Begin and end, in seconds from the first step."""


def periods(busy: Sequence[Period], last: float) -> list[Period]:
    """Return the periods of shipping that lie within the job."""
    found: list[list[float]] = []
    for begin, end in busy:
        if found and begin - found[-1][1] < GAP_S:
            found[-1][1] = end
        else:
            found.append([begin, end])
    whole = [(begin - STARTS_S, min(end, last)) for begin, end in found]
    return [(begin, end) for begin, end in whole if begin > 0 and end - begin - STARTS_S > LEAST_S]


def counted(job: dict[str, Any]) -> list[tuple[float, float]]:
    """Return end and milliseconds of the steps that count: beside no window, in whatever mode."""
    ends = job["ends"]
    steps = [(end, 1e3 * (end - begin)) for begin, end in itertools.pairwise(ends)]
    around = range(-5, ACTIVE + SETTLED)
    return [
        step for n, step in enumerate(steps) if n > SETTLED and (n - FIRST) % EVERY not in (a % EVERY for a in around)
    ]


def ratio(job: dict[str, Any], period: Period, others: Sequence[Period]) -> float | None:
    """Return the median step within a period to that of as long before and after it, without other periods."""
    begin, end = period
    length, steps = end - begin, counted(job)
    inside = [ms for at, ms in steps if begin < at <= end]
    beside = [
        ms
        for at, ms in steps
        if begin - length < at <= end + length and not any(one < at <= other for one, other in others)
    ]
    return statistics.median(inside) / statistics.median(beside) if min(len(inside), len(beside)) > 50 else None


def interval(values: Sequence[float]) -> str:
    """Return the median, and the narrowest interval of order statistics that holds it with 95 %, or its confidence."""
    ordered, count = sorted(values), len(values)
    if count < 2:
        return ", ".join(f"{v:.3f}" for v in ordered) or "-"
    outside, cut = 2 * 0.5**count, 0
    while cut + 1 < count // 2 and outside + 2 * math.comb(count, cut + 1) * 0.5**count <= 0.05:
        cut += 1
        outside += 2 * math.comb(count, cut) * 0.5**count
    return (
        f"{statistics.median(ordered):.3f} ({ordered[cut]:.3f} to {ordered[-1 - cut]:.3f}, {1 - outside:.0%}, {count})"
    )


def show(results: list[dict[str, Any]]) -> None:
    """Print the ratios of periods, and those of whole jobs to the first torchrun of their round."""
    within_jobs: dict[str, list[float]] = {mode: [] for mode in MODES}
    whole_jobs: dict[str, list[float]] = {mode: [] for mode in MODES[1:]}
    shipped_s = sent = 0.0
    for place in range(0, len(results) - len(MODES) + 1, len(MODES)):
        own = {job["mode"]: job for job in results[place : place + len(MODES)]}
        shipping = periods(own["store"]["busy"], own["store"]["ends"][-1])
        shipped_s += sum(end - begin for begin, end in shipping)
        sent += own["store"]["bytes"]
        for mode, job in own.items():
            within_jobs[mode] += [r for period in shipping if (r := ratio(job, period, shipping)) is not None]
        usual = {mode: statistics.median(ms for _, ms in counted(job)) for mode, job in own.items()}
        print(", ".join(f"{mode} {ms:.2f} ms" for mode, ms in usual.items()))
        for mode in whole_jobs:
            whole_jobs[mode].append(usual[mode] / usual[MODES[0]])
    print(
        f"shipping for {shipped_s:.0f} s, {sent / 1e3:.0f} kB of rank 0's node; medians (interval, confidence, number)"
    )
    print("\n| | step while shipping / beside | step of the job / under torchrun |\n| --- | --- | --- |")
    for mode in MODES:
        print(
            f"| {mode} | {interval(within_jobs[mode])} | {interval(whole_jobs[mode]) if mode in whole_jobs else ''} |"
        )


def stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="512kbit")
    parser.add_argument("--seconds", type=float, default=75.0, help="of training, a job")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("slow_store.json"))
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job(args.seconds, args.job)
        return 0
    if os.geteuid() or not shutil.which("tc"):
        raise SystemExit("this needs root, ip and tc")
    with HERE.open() as own:
        try:
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another one runs, with the same namespaces") from None
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
        results = json.loads(args.out.read_text()) if args.out.exists() else []
        if len(results) < len(MODES) * args.rounds:
            with network(args.rate), store():
                for place in range(len(results), len(MODES) * args.rounds):
                    with tempfile.TemporaryDirectory() as folder:
                        results.append(launch(MODES[place % len(MODES)], place, args.seconds, Path(folder)))
                    args.out.write_text(json.dumps(results))
                    print(f"{results[-1]['mode']} measured", file=sys.stderr)
    show(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

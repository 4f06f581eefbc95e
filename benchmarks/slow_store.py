"""Two nodes whose link to the store of the run directory is slow: are steps longer while traces are shipped?

    sudo python benchmarks/slow_store.py [--rate 256kbit] [--seconds 270] [--jobs 3] [--out results.json]

Each node is a network namespace with a core of its own, which its rank shares with its launcher, its helper and the
process that ships. Ranks talk over a link of full speed; the store, moto's S3 server in a third namespace, is reached
over links that ``tc`` limits (token bucket). The server has the lowest priority and a third core; where there are only
two, it is on that of the second node, so that more is measured than what a node does.

Jobs differ by more than what is looked for, and so do the minutes of one job. Therefore shipping is switched within a
job: blocks of some seconds in which the processes that ship run, and blocks in which they are stopped (SIGSTOP) take
turns, in pairs of random order. A pair gives the ratio of the median steps of its blocks. Before the window, when there
is nothing to ship, the same blocks without a signal are the control: their ratios show what a ratio is by chance. The
interval of a median of ratios is that of the order statistics.

It goes on with the jobs that ``--out`` has: 15 minutes for three jobs. Needs root, ip, tc, moto[server], s3fs. However
it ends, all processes in the namespaces are killed, and the namespaces removed with their links and limits; what a
killed one left, the next removes.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import json
import math
import os
import random
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
SPACES = {name: f"rkslow{name}" for name in "abs"}
CONTROL = 0.25
"""Share of training before the window."""
ACTIVE = 100
"""Steps of the window: as many as give something to ship until the end."""
COMPUTE, DEVICE_S = 4, 0.010
"""Layers of a step, and its part in which no core works for the rank, as the host waits for a device."""
BLOCK_S, SETTLES_S = 6.0, 3.0
"""Length of a block, and of its beginning, which does not count, because buffers empty until then."""
LIMIT_S = 600.0
"""Of a job, with what it does at its end."""
QUICK = "100mbit"
"""The link after training: the rest is not waited for."""
IN_FLIGHT = 10
"""Packets of a connection to the store: its buffer is some three times as long, and the kernel goes on to send that
when the process is stopped."""
LOOK_S = 0.1
BUSY_BYTES = 1000
"""Between two looks at the link to the store: more than a handshake."""
SHIPS = b"rankscope.stores.process"
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
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(256, 256) for _ in range(COMPUTE))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ends, begin = [], time.monotonic()
    last = torch.zeros(1)
    while not last:
        model(torch.randn(64, 256)).pow(2).mean().backward()
        time.sleep(DEVICE_S)
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.monotonic())
        if len(ends) == 1:
            path.with_name("began").touch()
        if len(ends) % 100 == 0:  # rank 0 decides for both
            last.fill_(ends[-1] - begin > seconds)
            dist.broadcast(last, 0)
    path.with_name(f"{path.name}{dist.get_rank()}").write_text(json.dumps(ends))
    while dist.get_rank() == 0 and not path.with_name("quick").exists():  # the links, so that the job ends soon
        time.sleep(0.1)
    del model
    dist.destroy_process_group()


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def within(node: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", SPACES[node], *words]


def on_core(node: str, *words: str) -> list[str]:
    """The same on the core of this node: with two cores only, the store has that of node b."""
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cores[min("abs".index(node), len(cores) - 1)]), *within(node, *words)]


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
                    route = ["route", "replace", f"10.78.{net}.0/24", "dev", device, "src", address[:-3]]
                    ip("-n", SPACES[node], *route, "cwnd", "lock", str(IN_FLIGHT))
        limit(rate)
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl+C would leave the rest
        remove()


def limit(rate: str) -> None:
    """Limit the links to the store, both ways."""
    for node, device in (("a", "rks"), ("b", "rks"), ("s", "rka"), ("s", "rkb")):
        shaped = f"tc qdisc replace dev {device} root tbf rate {rate} burst 16kb latency 500ms"
        subprocess.run(within(node, *shaped.split()), check=True)


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
    words = on_core("s", "nice", "-n", "19", sys.executable, "-c", SERVES)
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


def moved(pid: int) -> int:
    """Bytes that the namespace of a process has sent to the store, and read back from it (proc_pid_net(5))."""
    lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
    counts = next((line.split(":")[1].split() for line in lines if line.strip().startswith("rks:")), ["0"] * 9)
    return int(counts[0]) + int(counts[8])


def shipping(nodes: str = "ab") -> list[int]:
    """Return the processes that ship."""
    found = []
    for node in nodes:
        told = subprocess.run(["ip", "netns", "pids", SPACES[node]], capture_output=True, text=True, check=False)
        for pid in map(int, told.stdout.split()):
            with contextlib.suppress(OSError):
                if SHIPS in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """Time that all threads of these processes have run (proc-schedstat)."""
    total = 0
    for path in (path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")):
        with contextlib.suppress(OSError):
            total += int(path.read_text().split()[0])
    return total / 1e9


class Switch:
    """Lets the processes that ship run and stop in turns, from the first step until the last.

    A block is (begin, end, whether they ran, whether there was anything to ship, bytes, CPU seconds of node a's).
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.blocks: list[tuple[float, float, bool, bool, int, float]] = []
        self._folder, self._random, self._over = folder, random.Random(seed), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not (self._folder / "began").exists():
            if self._over.wait(LOOK_S):
                return
        with subprocess.Popen(within("a", "sleep", "infinity")) as within_a:
            try:
                while not self._over.is_set():
                    orders = [True, False]
                    self._random.shuffle(orders)
                    real = self._ships(within_a.pid)
                    for runs in orders:
                        self._block(within_a.pid, runs, real)
            finally:
                self._signal(signal.SIGCONT)
                within_a.kill()

    def _ships(self, pid: int) -> bool:
        """Return whether something is shipped now, by the bytes of a moment."""
        before = moved(pid)
        self._over.wait(0.5)
        return bool(shipping()) and moved(pid) - before > BUSY_BYTES

    def _signal(self, number: int) -> None:
        for pid in shipping():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _block(self, pid: int, runs: bool, real: bool) -> None:
        if real:
            self._signal(signal.SIGCONT if runs else signal.SIGSTOP)
        self._over.wait(SETTLES_S)
        own = shipping("a")
        begin, sent, worked = time.monotonic(), moved(pid), cpu_s(own)
        self._over.wait(BLOCK_S - SETTLES_S)
        if real:  # also when it is over, so that none stays stopped
            sent, worked = moved(pid) - sent, cpu_s(own) - worked
            self._signal(signal.SIGCONT)
        if not self._over.is_set():
            self.blocks.append((begin, time.monotonic(), runs, real, sent if real else 0, worked if real else 0.0))


def launch(number: int, seconds: float, rate: str, folder: Path) -> dict[str, Any]:
    """One job: when the steps of rank 0 ended, monotonic seconds, and the blocks."""
    limit(rate)
    first = int(CONTROL * seconds / (DEVICE_S + 0.004))
    place = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", f"job{number}", "--rdzv-backend", "c10d"]
    place += ["--rdzv-endpoint", "10.78.1.1:29555"]
    settings = [f"run.dir=s3://bucket/run{number}_{time.time():.0f}", "analysis.enabled=false"]
    settings += [f"schedule.skip_first={first}", f"schedule.active={ACTIVE}", "capture.with_stack=true"]
    ours = [word for setting in settings for word in ("-S", setting)]
    script = [str(HERE), "--job", str(folder / "ends"), "--seconds", str(seconds)]
    switch, processes = Switch(folder, number), []
    try:
        for node, device in (("a", "rkb"), ("b", "rka")):
            env = os.environ | credentials(node) | {"GLOO_SOCKET_IFNAME": device, "OMP_NUM_THREADS": "1"}
            env["TMPDIR"] = str(folder)
            with (folder / f"{node}.log").open("w") as log:
                own = ["--rdzv-conf", f"is_host={int(node == 'a')}", "--local-addr", f"10.78.1.{'ab'.index(node) + 1}"]
                words = [sys.executable, "-m", "rankscope", "run", *ours, *place, *own, *script]
                processes.append(subprocess.Popen(on_core(node, *words), env=env, stdout=log, stderr=log))
        deadline = time.monotonic() + LIMIT_S
        while not (folder / "ends0").exists() and all(p.poll() is None for p in processes):
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
        switch.close()
        limit(QUICK)
        (folder / "quick").touch()
        codes = [process.wait(max(deadline - time.monotonic(), 1.0)) for process in processes]
    finally:
        switch.close()
        for node in "ab":
            end_all(SPACES[node])
    if any(codes):
        raise SystemExit(f"{codes}\n" + "".join((folder / f"{n}.log").read_text()[-3000:] for n in "ab"))
    return {"ends": json.loads((folder / "ends0").read_text()), "blocks": switch.blocks}


def pairs(job: dict[str, Any], real: bool) -> list[float]:
    """Return the ratios of the median step in which the processes ran to that in which they were stopped."""
    ends = job["ends"]
    steps = [(begin, end) for begin, end in itertools.pairwise(ends)]
    found = []
    blocks = [block for block in job["blocks"] if block[1] < ends[-1]]
    for one, other in itertools.pairwise(blocks):
        if one[2] == other[2] or one[3] != real or other[3] != real or blocks.index(one) % 2:
            continue
        if real and (max(one, other, key=lambda b: b[2])[4] <= BUSY_BYTES):
            continue  # all had been shipped before
        medians = {
            block[2]: statistics.median(end - begin for begin, end in steps if block[0] < begin and end < block[1])
            for block in (one, other)
        }
        found.append(medians[True] / medians[False])
    return found


def interval(values: Sequence[float]) -> str:
    """Return the median, and the narrowest interval of order statistics that holds it with 95 %, or its confidence."""
    ordered, count = sorted(values), len(values)
    if count < 2:
        return ", ".join(f"{v:.4f}" for v in ordered) or "-"
    outside, cut = 2 * 0.5**count, 0
    while cut + 1 < count // 2 and outside + 2 * math.comb(count, cut + 1) * 0.5**count <= 0.05:
        cut += 1
        outside += 2 * math.comb(count, cut) * 0.5**count
    around = f"{ordered[cut]:.4f} to {ordered[-1 - cut]:.4f}"
    return f"{statistics.median(ordered):.4f} ({around}, {1 - outside:.0%})"


def show(results: Sequence[dict[str, Any]]) -> None:
    print("| | pairs | step by step without | kB/s | CPU of a core |\n| --- | --- | --- | --- | --- |")
    for real, name in ((True, "shipping / stopped"), (False, "control, nothing to ship")):
        ratios = [ratio for job in results for ratio in pairs(job, real)]
        for runs in (True, False) if real else ():
            own = [b for job in results for b in job["blocks"] if b[3] and b[2] == runs]
            seconds = sum(b[1] - b[0] for b in own) or 1.0
            rate, share = sum(b[4] for b in own) / seconds / 1e3, sum(b[5] for b in own) / seconds
            print(f"| blocks in which it {'runs' if runs else 'is stopped'} | | | {rate:.1f} | {share:.2%} |")
        print(f"| {name} | {len(ratios)} | {interval(ratios)} | | |")
    for job in results:
        steps = [end - begin for begin, end in itertools.pairwise(job["ends"])]
        print(f"step {1e3 * statistics.median(steps):.2f} ms, {len(steps)} steps, {len(job['blocks'])} blocks")


def stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="256kbit")
    parser.add_argument("--seconds", type=float, default=270.0, help="of training, a job")
    parser.add_argument("--jobs", type=int, default=3)
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
        if len(results) < args.jobs:
            with network(args.rate), store():
                for place in range(len(results), args.jobs):
                    with tempfile.TemporaryDirectory() as folder:
                        results.append(launch(place, args.seconds, args.rate, Path(folder)))
                    args.out.write_text(json.dumps(results))
                    print(f"job {place + 1} of {args.jobs} measured", file=sys.stderr)
    show(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

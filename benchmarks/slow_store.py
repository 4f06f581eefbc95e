"""Two nodes whose link to the store of the run directory is slow: are steps longer while traces are shipped?

    sudo python benchmarks/slow_store.py [--rate 256kbit] [--steps 4000] [--rounds 3] [--out results.json]

Each node is a network namespace. Ranks talk over a link of full speed; the store, moto's S3 server in a third
namespace, is reached over links that ``tc`` limits (token bucket). The job (gloo, DDP, one rank a node) notes when each
step ends, and this script how many bytes the links to the store carry. A round is the job under torchrun, under
rankscope with a shared folder, and under rankscope with the store. It goes on with what ``--out`` has. Needs root, ip,
tc, moto[server], s3fs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__)
MODES = ("torchrun", "folder", "store")
SPACES = {name: f"rkslow{name}" for name in "abs"}
FIRST, ACTIVE = 100, 5
"""The window."""
SETTLED = 30
LIMIT_S = 900.0
"""Of a job."""
BUSY_BYTES = 1000
"""In a tenth of a second on the link to the store: more than a handshake."""
SERVES = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("0.0.0.0", 9000, DomainDispatcherApplication(create_backend_app), threaded=True)
server.serve_forever()
"""


def job(steps: int, path: Path) -> None:
    """Train, and write when each step has ended (seconds, monotonic, the same clock on all nodes of one machine)."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ends = []
    for _ in range(steps):
        model(torch.randn(64, 256)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.monotonic())
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
        for space in SPACES.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


@contextlib.contextmanager
def store() -> Iterator[None]:
    server = subprocess.Popen(
        within("s", sys.executable, "-c", SERVES), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        make = "import s3fs; s3fs.S3FileSystem().mkdir('bucket')"
        env, deadline = os.environ | credentials("a"), time.monotonic() + 600
        while subprocess.run(
            within("a", sys.executable, "-c", make), env=env, capture_output=True, check=False
        ).returncode:
            if time.monotonic() > deadline:
                raise SystemExit("no S3 server: pip install 'moto[server]' s3fs")
        yield
    finally:
        server.kill()
        server.wait()


def credentials(node: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://10.78.{2 if node == 'a' else 3}.2:9000",
    }  # fmt: skip


class Carried:
    """When the links to the store carried something, as (begin, end) in monotonic seconds, a node."""

    def __init__(self) -> None:
        self.busy: dict[str, list[tuple[float, float]]] = {"a": [], "b": []}
        self.bytes = {"a": 0, "b": 0}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(node,)) for node in "ab"]
        for thread in self._threads:
            thread.start()

    def _watch(self, node: str) -> None:
        reads = "while cat /sys/class/net/rks/statistics/tx_bytes; do sleep 0.1; done"
        with subprocess.Popen(within(node, "sh", "-c", reads), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            before, began = None, time.monotonic()
            for line in process.stdout:
                now, count = time.monotonic(), int(line)
                if before is not None and count - before > BUSY_BYTES:
                    self.busy[node].append((began, now))
                    self.bytes[node] += count - before
                before, began = count, now
                if self._over.is_set():
                    process.kill()

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def launch(mode: str, number: int, steps: int, folder: Path) -> dict[str, Any]:
    """One job; the step times of rank 0, and of them those while its node shipped."""
    place = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", f"{mode}{number}", "--rdzv-backend", "c10d"]
    place += ["--rdzv-endpoint", "10.78.1.1:29555"]
    where = {"folder": str(folder / "run"), "store": f"s3://bucket/run{number}"}.get(mode, "")
    settings = [f"run.dir={where}", "analysis.enabled=false"]
    settings += [f"schedule.skip_first={FIRST}", f"schedule.active={ACTIVE}"]
    ours = [word for setting in settings for word in ("-S", setting)]
    launcher = ["torch.distributed.run"] if mode == "torchrun" else ["rankscope", "run", *ours]
    script = [str(HERE), "--job", str(folder / "ends"), "--steps", str(steps)]
    carried, processes = Carried(), []
    for node, device in (("a", "rkb"), ("b", "rka")):
        env = os.environ | credentials(node) | {"GLOO_SOCKET_IFNAME": device, "OMP_NUM_THREADS": "1"}
        with (folder / f"{node}.log").open("w") as log:
            own = ["--rdzv-conf", f"is_host={int(node == 'a')}", "--local-addr", f"10.78.1.{'ab'.index(node) + 1}"]
            words = [sys.executable, "-m", *launcher, *place, *own, *script]
            processes.append(subprocess.Popen(within(node, *words), env=env, stdout=log, stderr=log))
    try:
        codes = [process.wait(LIMIT_S) for process in processes]
    finally:
        carried.close()
        for process in processes:
            process.kill()
    if any(codes):
        raise SystemExit(f"{mode}: {codes}\n" + "".join((folder / f"{n}.log").read_text()[-3000:] for n in "ab"))
    ends = json.loads((folder / "ends0").read_text())
    took = [(1e3 * (end - begin), begin, end) for begin, end in pairwise(ends)]
    after = took[FIRST + ACTIVE + SETTLED :]
    shipping = [ms for ms, begin, end in after if any(b < end and begin < e for b, e in carried.busy["a"])]
    return {
        "mode": mode, "steps": len(after), "before": [ms for ms, _, _ in took[SETTLED:FIRST - 5]],
        "after": [ms for ms, _, _ in after], "shipping": shipping, "bytes": carried.bytes["a"],
    }  # fmt: skip


def show(results: list[dict[str, Any]]) -> None:
    def cell(values: list[float]) -> str:
        if len(values) < 20:
            return f"({len(values)} steps)"
        parts = statistics.quantiles(values, n=20)
        return f"{statistics.median(values):.2f}, {parts[-1]:.2f} ({len(values)})"

    print(
        "| median, 95th percentile of a step, ms (steps) | before the window | after it | while its node ships | kB |"
    )
    print("| --- | --- | --- | --- | --- |")
    for mode in MODES:
        for one in (r for r in results if r["mode"] == mode):
            cells = [cell(one[key]) for key in ("before", "after", "shipping")]
            print(f"| {mode} | {' | '.join(cells)} | {one['bytes'] / 1e3:.0f} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="256kbit")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("slow_store.json"))
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job(args.steps, args.job)
        return 0
    if os.geteuid() or not shutil.which("tc"):
        raise SystemExit("this needs root, ip and tc")
    results = json.loads(args.out.read_text()) if args.out.exists() else []
    with network(args.rate), store():
        for number in range(len(results), len(MODES) * args.rounds):
            with tempfile.TemporaryDirectory() as folder:
                results.append(launch(MODES[number % len(MODES)], number, args.steps, Path(folder)))
            args.out.write_text(json.dumps(results))
            print(f"{results[-1]['mode']} measured", file=sys.stderr)
    show(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

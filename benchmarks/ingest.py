"""Time until traces are loaded: HTA and rankscope, from JSON and from the Parquet cache.

Makes its own input: the steps of a recorded trace (by default one of tests/data) are repeated, with ids and times
moved on, in Kineto's own layout. Each contender runs in a process tree of its own, one after another; CPU seconds
are those of the whole tree, memory is that of its largest process.

    python benchmarks/ingest.py --events 250000 --ranks 2
    python benchmarks/ingest.py --trace rank_0.json.gz --events 1000000 --ranks 8
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "param_dlrm_8ranks.tar.gz"
STEP = re.compile(r"ProfilerStep#(\d+)")

IMPORTS = "import sys, pathlib\n"
OURS = IMPORTS + (
    "from rankscope.trace.files.load import load_traces\n"
    "if __name__ == '__main__':\n"
    "    result = load_traces([pathlib.Path(sys.argv[1])], cache={cache})\n"
    "    print(sum(len(t.events) for t in result.traces))\n"
)
HTA = IMPORTS + (
    "import logging, warnings; warnings.simplefilter('ignore'); logging.disable(logging.CRITICAL)\n"
    "from hta.trace_analysis import TraceAnalysis\n"
    "if __name__ == '__main__':\n"
    "    found = sorted(pathlib.Path(sys.argv[1]).glob('*.json.gz'))\n"
    "    files = {rank: str(path) for rank, path in enumerate(found)}\n"
    "    analysis = TraceAnalysis(trace_files=files, trace_dir=sys.argv[1])\n"
    "    print(sum(len(analysis.t.get_trace(r)) for r in analysis.t.get_ranks()))\n"
)
EMPTY_OURS = IMPORTS + "import rankscope.trace.files.load\nprint(0)\n"
EMPTY_PARQUET = IMPORTS + "import rankscope.trace.files.load, pyarrow.parquet\nprint(0)\n"
EMPTY_HTA = IMPORTS + "import hta.trace_analysis\nprint(0)\n"


@dataclass
class Cost:
    name: str
    seconds: float
    cpu: float
    megabytes: float
    events: int


def recorded(path: Path | None) -> dict[str, Any]:
    if path is None:
        with tarfile.open(RECORDED) as archive:
            member = next(m for m in archive.getmembers() if "worker0" in m.name)
            file = archive.extractfile(member)
            assert file is not None
            return json.load(file)  # type: ignore[no-any-return]
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as text:
        return json.load(text)  # type: ignore[no-any-return]


def _later_step(match: re.Match[str], steps: int) -> str:
    return f"ProfilerStep#{int(match.group(1)) + steps}"


def repeated(trace: dict[str, Any], wanted: int) -> Iterator[str]:
    """Yield the events of the trace repeatedly, in Kineto's layout, until there are ``wanted`` complete ones."""
    events = [e for e in trace["traceEvents"] if e.get("ph") in {"X", "s", "f", "i"} and e.get("cat") != "Trace"]
    complete = [e for e in events if e["ph"] == "X"]
    numbers = [int(m.group(1)) for e in complete if (m := STEP.match(e["name"]))]
    steps = max(numbers) - min(numbers) + 1 if numbers else 1
    first = min(e["ts"] for e in complete)
    period = max(e["ts"] + e["dur"] for e in complete) - first + 10
    ids = 1 + max(
        (e["args"].get(k, 0) for e in complete for k in ("correlation", "External id") if "args" in e), default=0
    )
    for again in range(-(-wanted // len(complete))):
        for event in events:
            args = dict(event.get("args", {}))
            for key in ("correlation", "External id"):
                if key in args:
                    args[key] += again * ids
            name = STEP.sub(partial(_later_step, steps=again * steps), event["name"])
            ts = event["ts"] + again * period
            ts = f"{ts:.3f}" if isinstance(ts, float) else ts
            place = f'"pid": {json.dumps(event.get("pid", 0))}, "tid": {json.dumps(event.get("tid", 0))}'
            if event["ph"] == "X":
                yield (
                    f'  {{\n    "ph": "X", "cat": "{event["cat"]}", "name": {json.dumps(name)}, {place},\n'
                    f'    "ts": {ts}, "dur": {event["dur"]},\n'
                    f'    "args": {{\n      {json.dumps(args)[1:-1]}\n    }}\n  }}'
                )
            else:
                yield (
                    f'  {{\n    "ph": "{event["ph"]}", "id": {event.get("id", 0) + again * ids}, {place}, "ts": {ts},\n'
                    f'    "cat": "{event.get("cat", "")}", "name": {json.dumps(name)}, "bp": "e"\n  }}'
                )


def make_input(folder: Path, trace: dict[str, Any], events: int, ranks: int) -> float:
    """Write one file per rank; return the total size of the JSON, MB."""
    total = 0
    head = {k: v for k, v in trace.items() if k not in {"traceEvents", "traceName", "distributedInfo"}}
    body = ",\n".join(repeated(trace, events))
    for rank in range(ranks):
        info = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks}}
        text = f'{json.dumps(head | info)[:-1]},\n  "traceEvents": [\n{body}\n  ],\n  "traceName": "rank_{rank}"\n}}\n'
        raw = text.encode()
        total += len(raw)
        with gzip.open(folder / f"rank_{rank}.json.gz", "wb", compresslevel=3) as file:
            file.write(raw)
    return total / 1e6


def measure(name: str, script: str, folder: Path) -> Cost:
    """Run one program in a child of a child, so that CPU time and peak memory are those of its processes only."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "contender.py")
        path.write_text(script)
        outer = (
            "import json, resource, subprocess, sys, time\n"
            "begun = time.monotonic()\n"
            "done = subprocess.run([sys.executable, *sys.argv[1:]], capture_output=True, text=True)\n"
            "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
            "print(json.dumps([time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024,\n"
            "                  done.returncode, done.stdout, done.stderr[-2000:]]))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", outer, str(path), str(folder)], capture_output=True, text=True, check=True
        )
    seconds, cpu, megabytes, code, said, errors = json.loads(done.stdout)
    if code != 0:
        raise SystemExit(f"{name} ended with {code}:\n{errors}")
    return Cost(name, seconds, cpu, megabytes, int(said.split()[-1]))


def table(costs: list[Cost], empty: dict[str, Cost], json_mb: float) -> str:
    heads = ("seconds", "CPU s", "net CPU s", "MB/s", "MB/CPU s", "peak MB", "events", "ratio")
    lines = [f"{'':<24}" + "".join(f"{head:>11}" for head in heads)]
    net = {c.name: max(c.cpu - empty[c.name].cpu, 1e-3) for c in costs}
    worst = max(net.values())
    lines += [
        f"{c.name:<24}{c.seconds:>11.2f}{c.cpu:>11.2f}{net[c.name]:>11.2f}{json_mb / c.seconds:>11.0f}"
        f"{json_mb / net[c.name]:>11.0f}{c.megabytes:>11.0f}{c.events:>11}{worst / net[c.name]:>11.1f}"
        for c in costs
    ]
    lines += [
        "",
        "net CPU s: without starting Python and importing, once (measured apart: "
        + ", ".join(f"{k} {v.cpu:.2f} s, {v.megabytes:.0f} MB" for k, v in empty.items())
        + "). What worker processes start and import is in: ours are new interpreters, HTA's are forked.",
        "ratio: of net CPU s, to the slowest.",
        "peak MB: the largest process of the tree, interpreter and imports included.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="recorded trace to repeat (default: one of tests/data)")
    parser.add_argument("--events", type=int, default=250_000, help="complete events of each rank")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--without-hta", action="store_true", help="measure only ours")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        begun = time.monotonic()
        json_mb = make_input(folder, recorded(given.trace), given.events, given.ranks)
        packed = sum(p.stat().st_size for p in folder.iterdir()) / 1e6
        print(
            f"{given.ranks} ranks, {json_mb:.0f} MB of JSON ({packed:.0f} MB gzip), {os.cpu_count()} CPUs; "
            f"made in {time.monotonic() - begun:.0f} s\n"
        )
        costs, empty = [], {}
        contenders = [
            ("rankscope, JSON", OURS.format(cache=False), EMPTY_OURS),
            ("rankscope, writes cache", OURS.format(cache=True), EMPTY_PARQUET),
            ("rankscope, from cache", OURS.format(cache=True), EMPTY_PARQUET),
        ]
        if not given.without_hta:
            contenders.insert(0, ("HTA", HTA, EMPTY_HTA))
        for name, script, nothing in contenders:
            empty[name] = measure(name, nothing, folder)
            costs.append(measure(name, script, folder))
        print(table(costs, empty, json_mb))
    print(f"\npeak of this script itself: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()

"""Time of redacting a trace, relative to the time of reading it.

    python benchmarks/redact.py [--megabytes 144] [TRACE ...]

A trace that is too short is repeated until it has so many megabytes of text (its events again, later in time). Both are
done in one process, one after the other, three times; the best of each counts. On a busy machine only the time of
the processor means something.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rankscope.privacy.files.traces import redact_trace
from rankscope.privacy.naming.policy import LEVELS
from rankscope.privacy.naming.tokens import new_tokens
from rankscope.trace.kineto.build import read_trace

DATA = Path(__file__).parents[1] / "tests" / "data" / "traces"
TIMES = 3


def repeated(source: Path, target: Path, megabytes: float) -> int:
    """Write a trace with the events of another again and again; return its size as text."""
    document = json.loads(gzip.decompress(source.read_bytes()))
    events = document.pop("traceEvents")
    timed = [event["ts"] for event in events if event.get("ph") == "X"]
    later, size, number = max(timed) - min(timed) + 1000.0, 0, 0
    head = json.dumps(document)[:-1] + ', "traceEvents": [\n'
    with gzip.open(target, "wt", encoding="utf-8", compresslevel=1) as stream:
        stream.write(head)
        size += len(head)
        while size < megabytes * 1e6:
            again = [{**e, "ts": e["ts"] + number * later} if "ts" in e else e for e in events]
            text = (",\n" if number else "") + ",\n".join(json.dumps(event) for event in again)
            stream.write(text)
            size, number = size + len(text), number + 1
        stream.write("\n]}")
    return size


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return elapsed seconds and CPU seconds."""
    begun = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


def measure(source: Path, folder: Path) -> list[float]:
    """Best seconds of reading and of redacting: those that pass, then those of the processor."""
    read, redacted = [], []
    for turn in range(TIMES):
        target = folder / f"{turn}.json.gz"
        read.append(timed(partial(read_trace, source)))
        redacted.append(timed(partial(redact_trace, source, target, new_tokens(), LEVELS["public"])))
    return [min(times) for kind in range(2) for times in ([r[kind] for r in read], [r[kind] for r in redacted])]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--megabytes", type=float, default=144)
    arguments = parser.parse_args()
    traces = arguments.traces or [
        DATA / "fsdp2_slow_gpu" / "rank_0.json.gz",
        DATA / "gloo_ddp_input" / "rank_0.json.gz",
    ]
    print(
        "| trace | text, MB | read, s | redacted, s | ratio | read, CPU s | redacted, CPU s | ratio | peak memory, MB |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for trace in traces:
        with tempfile.TemporaryDirectory() as folder:
            grown = Path(folder) / "grown.json.gz"
            size = repeated(trace, grown, arguments.megabytes)
            read, redacted, read_cpu, redacted_cpu = measure(grown, Path(folder))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        name = f"{trace.parent.name}/{trace.name}"
        times = f"{read:.2f} | {redacted:.2f} | {redacted / read:.2f}"
        processor = f"{read_cpu:.2f} | {redacted_cpu:.2f} | {redacted_cpu / read_cpu:.2f}"
        print(f"| {name} | {size / 1e6:.0f} | {times} | {processor} | {peak:.0f} |")


if __name__ == "__main__":
    main()

"""Time and memory of merging many ranks into one timeline, on a simulated job.

    python benchmarks/merge.py [--tp 8] [--dp 8] [--steps 20] [--max-mb 300]

150 collectives a rank and step in a TP x DP mesh. The traces are in memory before: what is told is on top of them.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "analysis"))

from worlds import MS, Fault, Item, Mesh, by_hand, simulate

from rankscope.timeline import merge as timeline_merge
from rankscope.timeline import writer as timeline_lines
from rankscope.timeline.prepare import prepare_timeline
from rankscope.timeline.selection import Selection
from rankscope.trace.files.load import LoadResult

LAYERS = 50
"""Three calls each: 150 a step."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("tp", 8), ("dp", 8), ("steps", 20), ("max-mb", 300)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    mesh = Mesh(tp=arguments.tp, dp=arguments.dp)
    fault = Fault(mesh.size // 3, Item("fetch", host=20 * MS))
    traces = simulate(by_hand(LAYERS), mesh, steps=arguments.steps, noise=0.02, faults=[fault])
    events = sum(len(trace.events) for trace in traces)
    calls = sum(len(trace.collectives) for trace in traces)
    print(f"{len(traces)} ranks, {events:,} events, {calls:,} of them collectives; {peak_mb():.0f} MB")
    load = LoadResult(traces=traces, sources=[])
    begin = time.perf_counter()
    prepared = prepare_timeline(load)
    print(f"{'aligned and judged':20} {time.perf_counter() - begin:6.1f} s, peak {peak_mb():.0f} MB", flush=True)
    selection = Selection(max_mb=arguments.max_mb)
    with tempfile.TemporaryDirectory() as folder:
        merged = timeline_lines.Merged(Path(folder) / "all.json.gz")
        begin = time.perf_counter()
        wanted = [(window, column) for window in prepared.windows for column in range(len(window.views))]
        text = timeline_lines.lines(prepared, wanted, selection, merged)
        timeline_merge.write(merged.path, text, merged)
        print(f"{'written':20} {time.perf_counter() - begin:6.1f} s, peak {peak_mb():.0f} MB")
    print(f"{merged.slices:,} slices, {merged.arrows:,} arrows, {merged.json_bytes / 1e6:.0f} MB unpacked, "
          f"{merged.file_bytes / 1e6:.1f} MB packed; left out: {'; '.join(merged.left_out) or 'nothing'}")  # fmt: skip
    return 0


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    sys.exit(main())

"""Time and memory of matching, clocks, waits and the screening for late ranks, on jobs it simulates itself.

    python benchmarks/scale.py [--tp 8] [--dp 8] [--steps 20] [--whole]

150 collectives a rank and step in a TP x DP mesh, one rank stalled; ``--whole`` also runs the replay and the report,
with and without the stall.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "analysis"))

from worlds import MS, Fault, Item, Mesh, by_hand, simulate

from rankscope.analysis.matching.clocks import align
from rankscope.analysis.matching.collectives import match
from rankscope.analysis.matching.waits import measure_waits
from rankscope.analysis.pipeline import analyze
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.replay.segments import plan_segments
from rankscope.analysis.stragglers.cost import screen
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.load import LoadResult

T = TypeVar("T")
LAYERS = 50
"""Three calls each: 150 a step."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("tp", 8), ("dp", 8), ("steps", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    mesh, steps = Mesh(tp=arguments.tp, dp=arguments.dp), arguments.steps
    late = mesh.size // 3
    fault = Fault(late, Item("fetch", host=20 * MS))
    traces = simulate(by_hand(LAYERS), mesh, steps=steps, noise=0.02, faults=[fault])
    print(f"{len(traces)} ranks, {len(traces[0].collectives)} collectives and {len(traces[0].events)} events each")
    screening(traces, steps, late)
    if arguments.whole:
        timed("report, one rank stalled", lambda: whole(traces, [late]))
        healthy = simulate(by_hand(LAYERS), mesh, steps=steps, noise=0.02)
        timed("report, healthy", lambda: whole(healthy, []))
    return 0


def screening(traces: list[RankTrace], steps: int, late: int) -> None:
    before, begin = peak_mb(), time.perf_counter()
    views = timed("events classified", lambda: [make_view(t, t.rank if t.rank is not None else -1) for t in traces])
    matched = timed("calls matched", lambda: match(views))
    clocks = timed("clocks aligned", lambda: align(views, matched))
    waits = timed("waits measured", lambda: measure_waits(views, matched, clocks))
    timed("segments planned", lambda: plan_segments(views, matched, waits.steps))
    suspects = timed("ranks screened", lambda: screen(matched, waits, 1e8, steps))
    print(f"{'together':28} {time.perf_counter() - begin:6.2f} s, {peak_mb() - before:.0f} MB more at the peak")
    if matched.matched != matched.total or late not in suspects:
        raise SystemExit(f"wrong: {matched.matched} of {matched.total} calls matched, suspects {suspects.tolist()}")


def whole(traces: list[RankTrace], expected: list[int]) -> None:
    report = analyze(LoadResult(traces=traces, sources=[]), hta=False)
    if report.verdict.ranks != expected or report.errors:
        raise SystemExit(f"wrong: {report.verdict.sentence} {report.errors}")


def timed(what: str, work: Callable[[], T]) -> T:
    begin = time.perf_counter()
    result = work()
    print(f"{what:28} {time.perf_counter() - begin:6.2f} s", flush=True)
    return result


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    sys.exit(main())

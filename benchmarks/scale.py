"""Time and memory of matching, clocks, waits and the screening for late ranks, on simulated jobs.

    python benchmarks/scale.py [--tp 8] [--dp 8] [--steps 20] [--whole]
    python benchmarks/scale.py --ranks 8,64,256,512,1024 [--steps 20] [--layers 3] [--out results.json]

150 collectives a rank and step in a TP x DP mesh, one rank stalled; ``--whole`` also runs the replay and the report,
with and without the stall.

``--ranks`` makes a table: for each number of ranks (TP 8 x DP, in a process of its own, 3 collectives a layer and step)
the CPU seconds of every stage from reduced objects to the written report, the most memory until its end, and by which
power of the ranks the seconds grow: between the last two sizes, and from the first of 256 or more to the last. The job
is simulated and its objects are written by another process, whose memory is not that of the report. The planted rank
has to be found in each. It goes on with the sizes that ``--out`` does not have.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "analysis"))

from worlds import MS, Fault, Item, Mesh, by_hand, simulate

from rankscope.analysis.clocks.alignment import align
from rankscope.analysis.clocks.waits import measure_waits
from rankscope.analysis.matching.collectives import match
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
    parser.add_argument("--ranks", metavar="N,N", help="make a table of these numbers of ranks, multiples of 8")
    parser.add_argument("--layers", type=int, default=3, help="of the table's job")
    parser.add_argument("--out", type=Path, help="of the table: what was measured, to go on from")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ranks:
        sizes = [int(text) for text in arguments.ranks.split(",")]
        return table(sizes, arguments.steps, arguments.layers, arguments.out)
    if arguments.one and arguments.write:
        print(json.dumps(written(arguments.one, arguments.steps, arguments.layers, arguments.write)))
        return 0
    if arguments.one:
        print(json.dumps(stages(arguments.one, arguments.steps, arguments.layers)))
        return 0
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


LARGE = 256
"""Ranks from which growth is judged: below, constant costs hide it."""
TOGETHER = "from objects to the report"
PARTS = ("build_graph", "prepare", "judge_ranks", "measure", "slow_groups")
"""Of the replay, whose own stage is all of them."""


def table(sizes: Sequence[int], steps: int, layers: int, out: Path | None) -> int:
    """Measure each size and print a row a stage."""
    kept: dict[str, dict[str, tuple[float, float]]] = json.loads(out.read_text()) if out and out.exists() else {}
    for size in sizes:
        if _key(size, steps, layers) in kept:
            continue
        words = [sys.executable, __file__, "--one", str(size), "--steps", str(steps), "--layers", str(layers)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        kept[_key(size, steps, layers)] = json.loads(done.stdout.splitlines()[-1])
        if out:
            out.write_text(json.dumps(kept))
        print(f"{size} ranks measured", file=sys.stderr)
    found = {size: kept[_key(size, steps, layers)] for size in sizes}
    last, large = sizes[-1], [size for size in sizes if size >= LARGE]
    spans = [pair for pair in (tuple(sizes[-2:]), (large[0], last) if len(large) > 2 else ()) if len(pair) == 2]
    heads = [*(f"{size:,}" for size in sizes), *(f"power {one:,} to {other:,}" for one, other in spans)]
    print("| CPU s, and MB at its end | " + " | ".join(heads) + " |\n| --- |" + " --- |" * len(heads))
    for stage in found[last]:
        cells = [f"{s:.2f}, {mb:.0f}" if s >= 0.005 else "" for s, mb in (found[n].get(stage, (0.0, 0)) for n in sizes)]
        if any(cells):
            powers = [_power(found, one, other, stage) for one, other in spans]
            print(f"| {stage} | " + " | ".join([*cells, *powers]) + " |")
    return 0


def _key(size: int, steps: int, layers: int) -> str:
    return f"{size} ranks, {steps} steps, {layers} layers"


def _power(found: dict[int, dict[str, tuple[float, float]]], one: int, other: int, stage: str) -> str:
    """Return log(seconds) / log(ranks); empty where a size took so little that chance decides."""
    before, after = found[one].get(stage, (0.0, 0))[0], found[other].get(stage, (0.0, 0))[0]
    return f"{math.log(after / before) / math.log(other / one):.2f}" if min(before, after) > 0.05 else ""


def stages(size: int, steps: int, layers: int) -> dict[str, tuple[float, float]]:
    """Return stage -> (CPU seconds, peak memory of the process until its end, MB)."""
    from rankscope.analysis.windows import replay
    from rankscope.analysis.windows.stages import Stages
    from rankscope.reduced.collected import load_objects
    from rankscope.report import write_report

    took: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def clocked(stage: str, work: Callable[[], T]) -> T:
        begin = time.process_time()
        try:
            return work()
        finally:
            took[stage][0] += time.process_time() - begin
            took[stage][1] = peak_mb()

    run = Stages.run

    def stage(self: Stages, where: str, work: Callable[[], Any], instead: Callable[[], Any]) -> Any:
        return clocked(where.rstrip("0123456789 "), lambda: run(self, where, work, instead))

    Stages.run = stage  # type: ignore[method-assign]
    for name in PARTS:
        _clock(replay, name, clocked)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.columns"
        words = [sys.executable, __file__, "--one", str(size), "--steps", str(steps), "--layers", str(layers)]
        done = subprocess.run([*words, "--write", str(path)], stdout=subprocess.PIPE, text=True, check=True)
        took["columns written"] = json.loads(done.stdout.splitlines()[-1])
        load = clocked("columns read", lambda: load_objects([path]))
        report = clocked("analysis", lambda: analyze(load, hta=True))
        clocked("report written", lambda: write_report(report, Path(folder) / "report"))
    if report.verdict.ranks != [size // 3] or report.errors:
        raise SystemExit(f"wrong: {report.verdict.sentence} {report.errors}")
    took[TOGETHER] = [sum(took[name][0] for name in ("columns read", "analysis", "report written")), peak_mb()]
    return {name: (took[name][0], took[name][1]) for name in sorted(took, key=lambda n: -took[n][0])}


def written(size: int, steps: int, layers: int, path: Path) -> tuple[float, float]:
    """Simulate a job and write its objects. Return the CPU seconds of writing, and the peak memory, MB: the simulation
    holds all traces at once."""
    from rankscope.trace.files.objects import ObjectWriter, ReducedFile

    took = 0.0
    mesh, fault = Mesh(tp=8, dp=size // 8), Fault(size // 3, Item("fetch", host=20 * MS))
    with ObjectWriter.open(path) as writer:
        for trace in simulate(by_hand(layers), mesh, steps=steps, noise=0.02, faults=[fault]):
            begin = time.process_time()
            member = writer.add(trace)
            took += time.process_time() - begin
            name = f"rank_{trace.rank}.json"
            writer.contents.files.append(ReducedFile(path=name, name=name, format="simulated", members=[member]))
    return took, peak_mb()


def _clock(module: Any, name: str, clocked: Callable[[str, Callable[[], Any]], Any]) -> None:
    whole = getattr(module, name)
    setattr(module, name, lambda *args, **more: clocked(f"replay: {name}", lambda: whole(*args, **more)))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    sys.exit(main())

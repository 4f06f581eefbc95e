"""Verdicts on simulated jobs with known truth: ranks, cause, cost, and error of the cost.

    python benchmarks/truth.py [--ideal] [--seed 0] [--drawn 0] [--others] [--healthy 4] [--only ddp]
                              [--jobs 2] [--errors] [--verbose]

With --errors what was said over what is true goes into the package, as what the replay is known to be wrong by.

Every world is a job that was simulated with and without its fault (tests/support/worlds); what rankscope reads are its
traces. A fault is due when it costs 5 % of the step or more; those of 3 to 5 % are counted beside.

    right       one or more of those at fault are named, and nobody else (of a slow link also: the report says
                that communication binds the job; of a pipeline whose stages have no peers also: the verdict is that
                their stage computes longer)
    innocent    somebody else is named
    missed      a verdict, and nobody named
    abstained   not enough data for a verdict
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from model_errors import keep

from rankscope.analysis.pipeline import analyze
from rankscope.analysis.stragglers.model_error import LINK
from rankscope.trace.files.load import load_traces
from support.worlds.catalogue import CAUSES, World, drawn, faults, healthy, others, simulated, small

DUE, SMALL = 0.05, 0.03
"""Of the step."""
LINK_FAULT = "link"
STAGE = "uneven_stages"
MESH = {
    **dict.fromkeys(("ddp", "fsdp", "tp"), "one group"),
    **dict.fromkeys(("pp", "ppdp"), "stages"),
    "tpdp": "grid",
    "ep": "experts",
    "cp": "ring",
}
"""Kinds of meshes that rankscope distinguishes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulated job and its verdict."""

    world: World
    step_ms: float
    cost_ms: float
    kind: str
    ranks: tuple[int, ...]
    cause: str | None
    said_ms: float | None
    error_ms: float | None
    sentence: str

    @property
    def share(self) -> float:
        return self.cost_ms / self.step_ms

    @property
    def grade(self) -> str:
        due = set(self.world.due())
        if set(self.ranks) - due:
            return "innocent"
        if self.ranks:
            return "right"
        fault = self.world.fault
        if fault is not None and fault.kind == LINK_FAULT and self.kind == "comm_bound":
            return "right"
        return "abstained" if self.kind == "insufficient_data" else "missed"

    @property
    def cause_right(self) -> bool:
        fault = self.world.fault
        return fault is not None and (not CAUSES[fault.kind] or self.cause in CAUSES[fault.kind])

    @property
    def priced(self) -> bool:
        """All at fault are named, and nobody else, or the slow link: then what is said is their cost."""
        fault = self.world.fault
        named = set(self.ranks) == set(self.world.due()) or (fault is not None and fault.kind == LINK_FAULT)
        return self.said_ms is not None and named


def judge(world: World) -> Outcome:
    """Simulate a job, write its traces, read and analyse them."""
    made = simulated(world)
    with tempfile.TemporaryDirectory() as folder:
        for rank, text in enumerate(made.texts):
            with gzip.open(Path(folder) / f"rank_{rank}.json.gz", "wt", compresslevel=1) as stream:
                stream.write(text)
        report = analyze(load_traces([Path(folder)]), hta=False)
    verdict = report.verdict
    stage = next((f for f in report.findings if f.kind == STAGE), None)
    longest = () if stage is None or verdict.kind != "pipeline" else tuple(stage.ranks)
    return Outcome(
        world, made.step_ms, made.cost_ms, verdict.kind, tuple(verdict.ranks) or longest,
        verdict.cause or (STAGE if longest else None),
        verdict.cost_ms_per_step, verdict.cost_error_ms, verdict.sentence,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ideal", action="store_true", help="no noise, one clock")
    parser.add_argument("--seed", type=int, default=0, help="noise and recordings are drawn by it")
    parser.add_argument(
        "--drawn", type=int, default=0, help="so many faults drawn by the seed, instead of the chosen ones"
    )
    parser.add_argument("--others", action="store_true", help="kinds of jobs and faults beside the chosen ones")
    parser.add_argument("--healthy", type=int, default=4, help="rounds of 16 healthy worlds")
    parser.add_argument("--only", default="", help="worlds whose name holds this text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--errors", action="store_true", help="keep how far the costs are off in the package")
    parser.add_argument("--verbose", action="store_true", help="a line for each world")
    arguments = parser.parse_args()
    how = {"realistic": not arguments.ideal, "seed": arguments.seed}
    chosen = others(**how) if arguments.others else [*faults(**how), *small(**how)]
    worlds = [
        *(drawn(arguments.drawn, **how) if arguments.drawn else chosen),
        *healthy(**how, rounds=arguments.healthy),
    ]
    worlds = [world for world in worlds if arguments.only in world.name]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        outcomes = list(pool.map(judge, worlds))
    if arguments.verbose:
        for outcome in outcomes:
            line(outcome)
    table(outcomes)
    if arguments.errors:
        told = {name: getattr(arguments, name) for name in ("ideal", "drawn", "others", "only", "seed")}
        options = [
            f" --{name}" + ("" if value is True else f" {value}")
            for name, value in told.items()
            if value or name == "seed"
        ]
        errors(outcomes, "python benchmarks/truth.py --errors" + "".join(options))
    return 0


def errors(outcomes: list[Outcome], command: str) -> None:
    """Print by cause and mesh how far the costs are off, and keep it for the stated intervals."""
    cases: list[tuple[str, str, float]] = []
    for o in outcomes:
        if o.grade == "right" and o.priced and o.share >= DUE:  # of smaller ones scatter decides
            cause = LINK if o.kind == "comm_bound" else o.cause or ""
            cases.append((MESH[o.world.kind], cause, (o.said_ms or 0.0) / o.cost_ms - 1.0))
    keep("jobs simulated with and without a fault", command, cases)
    print("\ncosts, said over true less one, %: least, median, largest; number")
    for key in sorted({case[:2] for case in cases}):
        off = [100 * case[2] for case in cases if case[:2] == key]
        print(f"{key[0]:12s}{key[1]:14s}{min(off):7.1f}{median(off):7.1f}{max(off):7.1f}{len(off):5d}")


def line(outcome: Outcome) -> None:
    said = "" if outcome.said_ms is None else f"{outcome.said_ms:.2f}+-{outcome.error_ms or 0:.2f}"
    print(
        f"{outcome.grade:10s} {outcome.world.name:42s} step {outcome.step_ms:6.2f} costs {outcome.cost_ms:5.2f} "
        f"({100 * outcome.share:4.1f} %) {outcome.kind} {list(outcome.ranks)[:8]} {outcome.cause or ''} {said}"
    )


def table(outcomes: list[Outcome]) -> None:
    well = [o for o in outcomes if o.world.fault is None]
    ill = [o for o in outcomes if o.world.fault is not None]
    due = [o for o in ill if o.share >= DUE]
    small = [o for o in ill if SMALL <= o.share < DUE]
    print(f"{len(ill)} faults: {len(due)} cost 5 % of the step or more, {len(small)} cost 3 to 5 %")
    for name, rows in (("5 % or more", due), ("3 to 5 %", small)):
        grades = Counter(o.grade for o in rows)
        named = [o for o in rows if o.grade == "right"]
        print(f"{name}: " + ", ".join(f"{g} {grades[g]}" for g in ("right", "innocent", "missed", "abstained")))
        print(f"  cause right {sum(o.cause_right for o in named)} of {len(named)}")
        priced = [o for o in named if o.priced and o.cost_ms > 0]
        within = sum(abs((o.said_ms or 0) - o.cost_ms) <= 0.15 * o.cost_ms for o in priced)
        inside = sum(abs((o.said_ms or 0) - o.cost_ms) <= (o.error_ms or 0) for o in priced)
        widths = [(o.error_ms or 0) / o.said_ms for o in priced if o.said_ms]
        if widths:
            print(f"  half width of the stated error {100 * median(widths):.0f} % of the cost, median")
        print(f"  cost within 15 % {within} of {len(priced)}, truth inside the stated error {inside} of {len(priced)}")
    accused = [o for o in well if o.ranks]
    print(f"healthy: {len(well)}, accused {len(accused)} {[o.world.name for o in accused][:8]}")
    kinds = sorted({o.world.fault.kind for o in due if o.world.fault})
    meshes = sorted({o.world.kind for o in due})
    print("\nright of due  " + "".join(f"{mesh:>8}" for mesh in meshes))
    for kind in kinds:
        cells = []
        for mesh in meshes:
            rows = [o for o in due if o.world.kind == mesh and o.world.fault and o.world.fault.kind == kind]
            cells.append(f"{sum(o.grade == 'right' for o in rows)}/{len(rows)}" if rows else "-")
        print(f"{kind:14s}" + "".join(f"{cell:>8}" for cell in cells))


if __name__ == "__main__":
    raise SystemExit(main())

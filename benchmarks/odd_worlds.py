"""Verdicts on simulated jobs of kinds that no threshold was chosen on, in addition to those of truth.py.

    python benchmarks/odd_worlds.py [--seed 1] [--only pp6] [--jobs 2]

What is odd is in healthy jobs as well as beside faults: operations of which one in a hundred takes two to five times
as long, work that differs by rank and step, kernels 1.5 times slower beside communication, two steps of a warm-up in
the window, one device that is faster than the others, clocks that drift by 80 ppm, a pipeline stage with more layers
by design. Faults of other kinds: work bound by memory that takes twice as long, a pause in every third step, a device
that is slow in every other one, more kernels, two faults of two kinds. The truth is the same job without the fault.

    right    one or more of those at fault are named, and nobody else    innocent    somebody else is named
    missed   the fault costs 5 % of the step or more, and nobody is named    quiet    nobody is named, nor due
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from rankscope.analysis.pipeline import analyze
from rankscope.trace.files.load import load_traces
from support.worlds.catalogue import RECORDED, SKIPPED, mean_ms
from support.worlds.engine import US, Effects, Op, run
from support.worlds.faults import Fault, changed
from support.worlds.jobs import build
from support.worlds.kineto import Recording, traces

Change = Callable[[Sequence[Op], int, int], Sequence[Op]]
"""Operations of a step, rank and recorded step -> those with a change."""
DUE = 0.05


@dataclass(frozen=True)
class Odd:
    """A job with an unusual property, with or without a fault."""

    name: str
    kind: str
    size: int
    design: Change | None = None
    fault: Change | None = None
    due: tuple[int, ...] = ()
    beside: float | None = None
    tails: float = 0.0
    drift_ppm: float = 1.0


def planted(kind: str, ranks: tuple[int, ...], size: float, every: int = 1) -> Change:
    fault = Fault(kind, ranks, size)
    return lambda ops, rank, step: ops if step % every else changed(ops, fault, rank, max(step, 0), RECORDED)


def longer(ranks: tuple[int, ...], factor: float, bound_by_memory: bool = False) -> Change:
    def change(ops: Sequence[Op], rank: int, _: int) -> Sequence[Op]:
        def is_slow(op: Op) -> bool:
            return op.what == "kernel" and not (bound_by_memory and op.name.startswith(("mm", "flash", "expert")))

        return [replace(op, device=int(op.device * factor)) if rank in ranks and is_slow(op) else op for op in ops]

    return change


def more_kernels(ranks: Container[int], after: Callable[[Op], bool], most: int, us: float | None) -> Change:
    """Kernels of a name of their own (``us`` long), or like those that they follow, three fifths as long."""

    def change(ops: Sequence[Op], rank: int, _: int) -> Sequence[Op]:
        found: list[Op] = []
        added = 0
        for op in ops:
            found.append(op)
            if rank in ranks and op.what == "kernel" and after(op) and added < most:
                own = Op("kernel", name="topk", host=14 * US, device=int((us or 0.0) * US), shape=(333, 7))
                like = replace(op, device=int(0.6 * op.device))
                found.append(replace(own if us else like, key=1500 + added))
                added += 1
        return found

    return change


def uneven(spread: float, seed: int) -> Change:
    def change(ops: Sequence[Op], rank: int, step: int) -> Sequence[Op]:
        factor = 1.0 + spread * np.random.default_rng([seed, rank, step + SKIPPED]).uniform(-1, 1)
        return [
            replace(op, device=int(op.device * factor), shape=(int(op.shape[0] * factor), *op.shape[1:]))
            if op.name.startswith(("mm", "flash", "gelu"))
            else op
            for op in ops
        ]

    return change


def warming_up(ops: Sequence[Op], _: int, step: int) -> Sequence[Op]:
    return [replace(op, host=4 * op.host) for op in ops] if step < 2 else ops


def both(one: Change, other: Change) -> Change:
    return lambda ops, rank, step: other(one(ops, rank, step), rank, step)


def worlds(seed: int) -> list[Odd]:
    found: list[Odd] = []
    sizes = {"ddp": 4, "fsdp": 6, "tp": 4, "tpdp": 8, "pp": 4, "ppdp": 8, "ep": 4, "cp": 4}
    for kind, size in sizes.items():
        add = partial(Odd, kind=kind, size=size)
        found += [
            add("heavy tails", tails=0.01),
            add("uneven by 15 %", design=uneven(0.15, seed)),
            add("1.5 times slower beside", beside=1.5),
            add("warm-up", design=warming_up),
            add("a faster device", design=longer((1,), 0.8)),
            add("drift", drift_ppm=80.0),
        ]
    for kind, size, each, stage in (("pp", 4, 1, 2), ("ppdp", 8, 2, 1), ("ppdp", 12, 3, 3), ("pp", 6, 1, 5)):
        more = more_kernels(range(stage * each, (stage + 1) * each), lambda op: op.name.startswith("mm"), 99, None)
        found.append(Odd("a stage with more layers", kind, size, design=more))
    faulty = (("ddp", 5, 3), ("fsdp", 6, 2), ("tpdp", 12, 7), ("pp", 6, 2), ("ppdp", 12, 4), ("ep", 6, 5), ("cp", 6, 1))
    for kind, size, bad in faulty:
        add = partial(Odd, kind=kind, size=size, due=(bad,))
        slow = longer((bad,), 1.25)
        found += [
            add("twice as long where memory bounds", fault=longer((bad,), 2.0, bound_by_memory=True)),
            add("a pause in every third step", fault=planted("pause", (bad,), 14.0, every=3)),
            add("slow in every other step", fault=planted("slow_device", (bad,), 1.4, every=2)),
            add("slow, and input elsewhere", fault=both(slow, planted("input", (0,), 5.0)), due=(0, bad)),
            add("more kernels", fault=more_kernels((bad,), lambda _: True, 12, 200)),
            add("slow, 1.5 times slower beside", fault=slow, beside=1.5),
            add("slow, heavy tails", fault=slow, tails=0.01),
            add("slow, uneven by 10 %", fault=slow, design=uneven(0.1, seed)),
            add("slow, warm-up", fault=slow, design=warming_up),
            add("slow, a faster device elsewhere", fault=slow, design=longer(((bad + 1) % size,), 0.85)),
        ]
    return found


def judged(place: int, seed: int) -> tuple[str, bool, str]:
    """Simulate with and without the fault, and analyse: a grade, whether there is a fault, and a line for people."""
    odd = worlds(seed)[place]
    rng = np.random.default_rng([seed, place])
    mesh, steps = build(odd.kind, odd.size)
    beside = float(rng.uniform(1.03, 1.3)) if odd.beside is None else odd.beside
    effects = Effects(noise=float(rng.uniform(0.01, 0.03)), beside=beside, tails=odd.tails)
    last = SKIPPED + RECORDED - 1
    how = Recording(SKIPPED, last, 50.0, odd.drift_ppm, int(rng.choice([1, 2, 8])), bool(rng.random() < 0.3))

    def done(fault: Change | None):
        def program(rank: int, step: int) -> Sequence[Op]:
            ops: Sequence[Op] = steps[rank]
            for change in (odd.design, fault):
                ops = change(ops, rank, step - SKIPPED) if change is not None else ops
            return ops

        return run(program, mesh.size, last + 2, effects, seed)

    ill = done(odd.fault)
    step_ms = mean_ms(ill, SKIPPED)
    cost = step_ms - mean_ms(done(None), SKIPPED) if odd.fault else 0.0
    with tempfile.TemporaryDirectory() as folder:
        for rank, text in enumerate(traces(ill, mesh, how, seed)):
            (Path(folder) / f"rank_{rank}.json").write_text(text)
        verdict = analyze(load_traces([Path(folder)]), hta=False).verdict
    named = set(verdict.ranks)
    grade = "innocent" if named - set(odd.due) else "right" if named else "missed" if cost >= DUE * step_ms else "quiet"
    said = (
        "" if verdict.cost_ms_per_step is None else f"{verdict.cost_ms_per_step:.2f}+-{verdict.cost_error_ms or 0:.2f}"
    )
    line = f"{grade:9s}{odd.name:36s}{odd.kind}{odd.size:<4d} step {step_ms:6.2f} costs {cost:5.2f}: {verdict.kind} "
    return grade, odd.fault is not None, f"{line}{verdict.ranks} {verdict.cause or ''} {said}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="jobs whose name and mesh hold this text")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    odd = worlds(arguments.seed)
    places = [n for n, world in enumerate(odd) if arguments.only in f"{world.name} {world.kind}{world.size}"]
    counts: Counter[tuple[bool, str]] = Counter()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for grade, is_fault, line in pool.map(judged, places, [arguments.seed] * len(places)):
            counts[is_fault, grade] += 1
            print(line, flush=True)
    for is_fault, words in ((False, "healthy"), (True, "with a fault")):
        found = {grade: n for (of, grade), n in sorted(counts.items()) if of == is_fault}
        print(f"{words}: {sum(found.values())}: " + ", ".join(f"{grade} {n}" for grade, n in found.items()))
    return int(any(grade == "innocent" for _, grade in counts))


if __name__ == "__main__":
    raise SystemExit(main())

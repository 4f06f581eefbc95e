"""Simulated jobs by which verdicts are judged: faults of every kind on every mesh, and healthy jobs.

Each is run with its fault and without, from the same seed; the truth is the difference of the mean steps. ``ideal``
worlds have no noise; ``realistic`` ones have noise of 1 to 3 %, kernels slower beside communication and clocks apart;
some have times in whole microseconds, and in some a rank recorded one step later than the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from .engine import Effects, Op, Run, run
from .faults import Fault, changed
from .jobs import Mesh, build
from .kineto import Recording, traces

__all__ = [
    "RECORDED",
    "SKIPPED",
    "Simulated",
    "World",
    "drawn",
    "faults",
    "healthy",
    "mean_ms",
    "others",
    "simulated",
    "small",
    "waiting_for_input",
]

RECORDED = 6
SKIPPED = 2
"""Steps before the first one that is recorded."""

CAUSES: dict[str, tuple[str, ...]] = {
    "slow_device": ("slow_compute",),
    "slow_norms": ("slow_compute",),
    "input": ("input_stall",),
    "pause": ("host_pause",),
    "sync": ("host_sync",),
    "slow_host": ("launch_bound", "host_pause"),
    "bigger": ("uneven_work", "extra_compute", "slow_compute", "uneven_stages"),
    "hot_expert": ("uneven_work", "extra_compute", "slow_compute"),
    "link": (),
}
"""Causes that are right for a fault; none named for a slow link: a trace of it shows no rank's work."""


@dataclass(frozen=True, slots=True)
class World:
    """One job to be judged."""

    name: str
    kind: str
    size: int
    fault: Fault | None = None
    p2p_metadata: bool = True
    realistic: bool = True
    seed: int = 0
    shifted: tuple[int, ...] | None = None
    """Ranks that recorded one step later than the others; None: drawn."""
    per_host: int | None = None
    """Ranks of one host; None: drawn."""
    sizes: tuple[tuple[str, float], ...] = ()
    """Of the job, where they are not the usual ones: layers, micro batches, microseconds a matrix product."""

    def due(self) -> tuple[int, ...]:
        """Ranks of which one may be named."""
        return self.fault.ranks if self.fault is not None else ()


@dataclass
class Simulated:
    """A world's traces and its truth."""

    world: World
    texts: list[str]
    """Kineto JSON, by rank."""
    step_ms: float
    without_fault_ms: Callable[[], float]
    """Runs the world again without its fault, which takes as long as with it; the mean step."""
    alone_ms: dict[int, float] = field(default_factory=dict)
    """What mending one rank alone would gain."""

    @cached_property
    def cost_ms(self) -> float:
        """What the fault costs of each step that all ranks recorded, on average."""
        return 0.0 if self.world.fault is None else self.step_ms - self.without_fault_ms()


def waiting_for_input(ranks: int, late: int, ms: float = 30.0) -> list[str]:
    """The traces of a DDP job of so many ranks, one of which waits for its input in each step."""
    return simulated(World("ddp late", "ddp", ranks, Fault("input", (late,), ms), realistic=False)).texts


def simulated(world: World) -> Simulated:
    """Run a world with and without its fault, and record it."""
    rng = np.random.default_rng([world.seed, sum(map(ord, world.name))])
    mesh, steps = build(world.kind, world.size, **dict(world.sizes))
    effects, how = Effects(), Recording(p2p_metadata=world.p2p_metadata, first=SKIPPED, last=SKIPPED + RECORDED - 1)
    if world.realistic:
        effects = Effects(noise=float(rng.uniform(0.01, 0.03)), beside=float(rng.uniform(1.03, 1.08)))
        shifted = (int(rng.integers(mesh.size)),) if rng.random() < 0.15 else ()
        how = replace(
            how,
            clock_ms=float(rng.choice([0.0, 1.0, 50.0])),
            drift_ppm=float(rng.uniform(0, 2)),
            per_host=int(rng.choice([1, 2, 8])),
            whole_us=bool(rng.random() < 0.3),
            seq=bool(rng.random() < 0.5),
            shifted=shifted,
        )
    if world.shifted is not None:
        how = replace(how, shifted=world.shifted)
    if world.per_host is not None:
        how = replace(how, per_host=world.per_host)
    seed = int(rng.integers(2**31))
    total = SKIPPED + RECORDED + 1
    with_fault = _run(mesh, steps, world.fault, effects, seed, total)
    first = SKIPPED + bool(how.shifted)
    step = mean_ms(with_fault, first)
    return Simulated(
        world, traces(with_fault, mesh, how, seed), step,
        lambda: mean_ms(_run(mesh, steps, None, effects, seed, total), first),
    )  # fmt: skip


def _run(mesh: Mesh, steps: list[Sequence[Op]], fault: Fault | None, effects: Effects, seed: int, total: int) -> Run:
    def program(rank: int, step: int) -> Sequence[Op]:
        recorded = step - SKIPPED
        if fault is None or (fault.when != "always" and recorded < 0):
            return steps[rank]
        return changed(steps[rank], fault, rank, max(recorded, 0), RECORDED)

    return run(program, mesh.size, total, effects, seed)


def mean_ms(done: Run, first: int) -> float:
    """The mean of the steps that all ranks recorded: from the last end of the step before the ``first`` to that of the
    last one."""
    last: dict[int, int] = {}
    for rank in done.ranks:
        for ran in rank:
            last[ran.step] = max(last.get(ran.step, 0), ran.stop, ran.end)
    return (last[SKIPPED + RECORDED - 1] - last[first - 1]) / (SKIPPED + RECORDED - first) / 1e6


Row = tuple[str, int, Fault, bool]
"""Mesh, ranks, fault, and whether messages tell their peers."""


def _each(kind: str, size: float, text: str, when: str = "always", axis: str = "") -> list[Row]:
    """One kind of fault in the jobs of ``text``: ``mesh ranks`` ``culprits`` ``size`` ``bare?``, by commas.

    Of a size that is not given there it is ``size``.
    """
    rows: list[Row] = []
    for row in text.split(","):
        mesh, culprits, *more = row.split()
        bare = "bare" in more
        amount = [float(word) for word in more if word != "bare"] or [size]
        letters = mesh.rstrip("0123456789")
        first, _, last = culprits.partition("-")
        ranks = tuple(range(int(first), int(last) + 1)) if last else tuple(int(r) for r in first.split("+"))
        rows.append((letters, int(mesh[len(letters) :]), Fault(kind, ranks, amount[0], when, axis), not bare))
    return rows


def faults(*, realistic: bool, seed: int = 0) -> list[World]:
    """87 faults. ``seed`` draws noise and recording, not what is wrong."""
    rows: list[Row] = []
    # one slow device; several at once, the last of them all ranks of one host
    rows += _each("slow_device", 1.3, "ddp2 0 1.2, ddp4 1 1.15, ddp8 2 1.12, ddp8 2 1.4, ddp16 5 1.25, ddp64 21")
    rows += _each("slow_device", 1.3, "fsdp2 1, fsdp4 2 1.15, fsdp4 2 1.4, fsdp16 8 1.2, fsdp64 32 1.25")
    rows += _each("slow_device", 1.3, "tp2 1 1.2, tp4 3, tp8 7 1.4, tpdp4 1 1.25, tpdp8 2 1.4, tpdp16 5 1.2, tpdp64 21")
    rows += _each("slow_device", 1.3, "pp2 1, pp4 1 1.4, pp2 1 bare, pp4 3 1.25 bare, pp4 3 1.4 bare")
    rows += _each("slow_device", 1.4, "ppdp4 1 1.25, ppdp8 2, ppdp16 5 1.3, ppdp64 21, ppdp8 3 bare")
    rows += _each("slow_device", 1.3, "ep4 1 1.2, ep8 1 1.35, cp4 2 1.2, cp8 2 1.35, cp4 1 bare")
    rows += _each("slow_device", 1.3, "ddp4 1+3, fsdp8 1+7, ep8 1+7, tpdp16 1+15")
    rows += _each("slow_device", 1.25, "ddp16 8-15, fsdp16 8-15, ep16 8-15, tpdp16 8-15")
    # the host's
    rows += _each(
        "input", 6, "ddp2 1 4, ddp8 4 8, fsdp4 2 4, fsdp16 8, tp4 2 4, tpdp8 4, pp4 2 10, ppdp8 4 10, ep4 2, cp4 2"
    )
    rows += _each("pause", 8, "ddp4 1, ddp16 1 6, fsdp8 1, tpdp8 1, ppdp8 1 12, ep8 1")
    rows += _each("sync", 40, "ddp4 3 24, ddp8 7 30, fsdp4 3, fsdp8 7, tp4 3 60, ep8 7 80")
    rows += _each("slow_host", 14, "ddp4 1 16, fsdp8 1, tpdp8 1 13")
    # more work, on one rank or on all of a replica
    rows += _each("bigger", 1.3, "ddp8 5, fsdp4 2 1.25, fsdp16 7 1.4, ppdp8 0+2+4+6, tpdp8 4-7")
    # not always
    rows += _each("slow_device", 1.4, "ddp4 0-3, ddp8 1+5, fsdp4 0-3", when="turns")
    rows += _each("slow_device", 1.4, "ddp4 2, fsdp8 2, tpdp8 2", when="late")
    rows += _each("pause", 24, "ddp4 1, fsdp4 1, tp4 1", when="burst")
    # the network's, and an expert that everybody asks
    rows += _each("link", 6, "ddp8 3, fsdp8 3, ppdp16 5 12, tpdp16 5 9", axis="dp")
    rows += _each("hot_expert", 1.6, "ep4 1 1.4, ep8 1, ep16 1 2")
    return _worlds(rows, realistic, seed)


def small(*, realistic: bool, seed: int = 0) -> list[World]:
    """Faults that cost 3 to 5 % of the step, or a little more or less: the smallest that are looked for."""
    rows = [
        *_each("slow_device", 1.06, "ddp8 2 1.055, fsdp4 2 1.055, tp4 3, tpdp16 5 1.07, pp4 1 1.08, ppdp4 1 1.08"),
        *_each("slow_device", 1.07, "ep4 1, cp4 2 1.05, ddp4 1+3 1.05, fsdp16 8 1.06"),
        *_each(
            "input", 0.5, "ddp2 1 0.45, ddp8 4 0.45, fsdp4 2, tp4 2 0.8, tpdp8 4 0.8, pp4 2 1.6, ep4 2 0.7, cp4 2 0.8"
        ),
        *_each("sync", 18, "ddp4 3, fsdp4 3 24, tp4 3 40, ep8 7 110"),
        *_each("bigger", 1.06, "ddp8 5, fsdp4 2, tpdp8 4-7 1.08"),
    ]
    return _worlds(rows, realistic, seed, "small-")


def others(*, realistic: bool, seed: int = 0) -> list[World]:
    """Faults and healthy jobs of kinds that :func:`faults` does not have: a stage late in some steps only, kernels that
    never run alone, all-to-alls of uneven volume, a slow adapter, and receives that are posted ahead."""
    own, short = (("own_shapes", True),), (("norms_us", 150.0),)
    rows: list[tuple[str, int, Fault | None, tuple[tuple[str, float], ...], bool]] = [
        ("pp", 4, Fault("slow_device", (1,), 1.4, "late"), (), False),
        ("pp", 4, Fault("slow_device", (1,), 1.4, "late"), own, True),
        ("pp", 4, Fault("slow_device", (2,), 1.8, "burst"), own, True),
        ("pp", 4, Fault("input", (0,), 30, "burst"), (), True),
        ("pp", 4, Fault("pause", (1,), 30, "burst"), (), True),
        ("ppdp", 8, Fault("pause", (1,), 30, "burst"), (), False),
        ("fsdp", 4, Fault("slow_norms", (2,), 2.5), short, True),
        ("fsdp", 8, Fault("slow_device", (2,), 1.15), short, True),
        ("ep", 4, Fault("slow_device", (1,), 1.2), (("uneven", 0.3),), True),
        ("ep", 8, Fault("hot_expert", (1,), 1.6), (("uneven", 0.05),), True),
        ("pp", 4, None, own, True),
        ("fsdp", 4, None, short, True),
        ("ep", 4, None, (("uneven", 0.3),), True),
        ("ppdp", 8, Fault("link", (3,), 20, axis="pp"), (), True),
        ("cp", 8, Fault("link", (2,), 6, axis="cp"), (), True),
        ("pp", 4, Fault("slow_device", (3,), 1.3), (("posted_ahead", True), ("message_us", 240)), True),
        ("ppdp", 8, None, (("posted_ahead", True), ("message_us", 240)), True),
    ]
    worlds = []
    for number, (kind, size, fault, sizes, metadata) in enumerate(rows):
        name = f"{number:02d}-{kind}{size}-healthy" if fault is None else _name(number, kind, size, fault, metadata)
        extra = "".join(f"-{key}" for key, _ in sizes)
        worlds.append(World(f"other-{name}{extra}", kind, size, fault, metadata, realistic, seed, sizes=sizes))
    return worlds


def _worlds(rows: list[Row], realistic: bool, seed: int, prefix: str = "") -> list[World]:
    return [
        World(prefix + _name(number, kind, size, fault, metadata), kind, size, fault, metadata, realistic, seed)
        for number, (kind, size, fault, metadata) in enumerate(rows)
    ]


MESHES = {
    "ddp": (3, 5, 6, 12), "fsdp": (3, 6, 8, 12), "tp": (3, 6, 8), "tpdp": (8, 12, 16, 24), "pp": (3, 5, 6),
    "ppdp": (8, 12, 20), "ep": (3, 6, 12), "cp": (3, 6),
}  # fmt: skip
"""Sizes that :func:`faults` does not have, as far as the mesh allows."""


def drawn(count: int, *, realistic: bool, seed: int = 0) -> list[World]:
    """Faults that nobody chose: mesh, ranks, kind, size and the job itself are drawn by ``seed``."""
    rng = np.random.default_rng([seed, 20])
    found = []
    for number in range(count):
        kind = list(MESHES)[number % len(MESHES)]
        size = int(rng.choice(MESHES[kind]))
        what = str(rng.choice(["slow_device", "slow_device", "input", "pause", "sync", "bigger", "two slow"]))
        culprits = tuple(sorted(rng.choice(size, 2 if what == "two slow" else 1, replace=False).tolist()))
        when = "late" if what == "slow_device" and rng.random() < 0.2 else "always"
        amount = {
            "slow_device": rng.uniform(1.06, 1.5), "two slow": rng.uniform(1.1, 1.4), "bigger": rng.uniform(1.15, 1.5),
            "input": rng.uniform(1, 9), "pause": rng.uniform(3, 12), "sync": rng.integers(20, 90),
        }[what]  # fmt: skip
        sizes: list[tuple[str, float]] = [("work_us", float(rng.uniform(200, 700)))]
        if kind in {"pp", "ppdp"}:
            sizes = [("micro", int(rng.integers(4, 11))), ("work_us", float(rng.uniform(400, 1200)))]
        else:
            sizes.append(("layers", int(rng.choice([4, 6, 8]))))
        fault = Fault("slow_device" if what == "two slow" else what, culprits, round(float(amount), 2), when)
        name = f"drawn-{_name(number, kind, size, fault, metadata=True)}"
        found.append(World(name, kind, size, fault, True, realistic, seed, sizes=tuple(sizes)))
    return found


def _name(number: int, kind: str, size: int, fault: Fault, metadata: bool) -> str:
    when = "" if fault.when == "always" else f"-{fault.when}"
    several = f"x{len(fault.ranks)}" if len(fault.ranks) > 1 else ""
    return f"{number:02d}-{kind}{size}-{fault.kind}{several}{fault.size:g}{when}{'' if metadata else '-bare'}"


def healthy(*, realistic: bool, seed: int = 0, rounds: int = 4) -> list[World]:
    """Healthy jobs of every mesh, 16 a round."""
    sizes = {"ddp": (2, 8), "fsdp": (4, 16), "tp": (2, 8), "tpdp": (8, 16), "pp": (2, 4), "ppdp": (8, 16), "ep": (4, 8),
             "cp": (4, 8)}  # fmt: skip
    return [
        World(f"healthy-{kind}{size}-{turn}", kind, size, None, turn % 2 == 0, realistic, seed + 1000 * turn)
        for turn in range(rounds)
        for kind, each in sizes.items()
        for size in each
    ]

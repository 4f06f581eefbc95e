"""Simulate the programs of all ranks together; the result is the time of every operation.

The rules, all of them: a host issues its operations in order. A stream runs its kernels in order, each no earlier than
its launch. A collective ends on all its members at once, a transfer after the last of them arrived; a ring exchange
ends on a rank a transfer after the rank and both its neighbours arrived. A join makes the compute stream wait for a
call. A synchronisation makes the host wait for its streams. A kernel runs slower while a communication kernel of the
same rank occupies the device, also one that only waits for its peers (measured on real traces: 1.03 to 1.6 times).

The last rule depends on when calls run, which depends on the kernels before them. So the job is run a few times, and
each pass looks at the communication of the one before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["COMPUTE", "US", "Effects", "Op", "Program", "Ran", "Run", "run"]

US = 1_000
COMPUTE = "compute"
LAUNCH = 6 * US
"""From the start of a launch to the earliest start of its kernel."""
CALL = 4 * US
"""Length of a launch on the host."""
GAP = 1 * US
"""Between two kernels of a stream."""
PASSES = 3
_KEYS = 2048
"""Operations of a step have keys below."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of one rank.

    ``what`` is ``host`` (work of the host alone), ``input`` (the data loader's ``__next__``), ``pause`` (the host does
    nothing that a profiler sees), ``kernel``, ``call`` (a collective), ``pair`` (send or receive), ``ring`` (send to
    the next and receive from the previous rank at once), ``join`` (the compute stream waits for the call ``label``)
    or ``sync`` (the host waits for the device). Times are in nanoseconds.
    """

    what: str
    key: int = -1
    """Which operation of the step it is: the same number has the same noise with and without a fault."""
    name: str = ""
    host: int = 0
    """Host time from the end of the operation before to the launch."""
    device: int = 0
    """Length of the kernel alone on the device; of communication the transfer after the last arrival."""
    stream: str = COMPUTE
    group: tuple[int, ...] = ()
    axis: str = ""
    kind: str = ""
    elements: int = 0
    out_elements: int = 0
    peer: int = -1
    label: str = ""
    shape: tuple[int, ...] = ()
    ahead: bool = False
    """Of communication: it does not wait for the compute launched before it, as a receive that is posted ahead."""


Program = Callable[[int, int], Sequence[Op]]
"""``(rank, step) -> operations``."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What makes a simulated world like a real one."""

    noise: float = 0.0
    """Standard deviation of the logarithm of every host time and kernel length; half of it persists between steps."""
    beside: float = 1.0
    """How many times longer a kernel runs beside communication."""
    jitter: int = 300
    """Nanoseconds by which the ends of one collective differ, at most."""
    tails: float = 0.0
    """Share of all operations that take two to five times as long, by chance, on any rank."""


@dataclass(slots=True)
class Ran:
    """An operation and when it ran, in nanoseconds of one common clock."""

    op: Op
    step: int
    begin: int
    """The host begins with it."""
    issued: int
    """The launch begins; equals ``begin`` for an operation that launches nothing."""
    end: int
    """The host goes on."""
    start: int = -1
    """The kernel starts, -1 where there is none."""
    stop: int = -1


@dataclass(slots=True)
class Run:
    """A job that was run."""

    ranks: list[list[Ran]]
    marks: list[list[tuple[int, int]]]
    """Begin and end of each step on each rank's host."""

    def step_ns(self, skip: int = 0) -> float:
        """The mean step: from the last device or host work of the first step kept to that of the last one, per step.

        Ends are taken over all ranks, so that no rank's view is preferred.
        """
        ends: dict[int, int] = {}
        for ran in (ran for rank in self.ranks for ran in rank):
            ends[ran.step] = max(ends.get(ran.step, 0), ran.stop, ran.end)
        kept = [ends[step] for step in sorted(ends)][skip:]
        return (kept[-1] - kept[0]) / (len(kept) - 1)


@dataclass(slots=True)
class _Call:
    """Communication that several ranks take part in."""

    members: tuple[int, ...]
    arrived: dict[int, int] = field(default_factory=dict)
    transfer: int = 0
    """The longest of what the members say: one slow link slows the call of all."""

    def last(self) -> int | None:
        return max(self.arrived.values()) if len(self.arrived) == len(self.members) else None


class _Noise:
    """Factors by rank, step and operation: the same for one seed, whatever else the programs hold."""

    def __init__(self, sigma: float, seed: int, size: int, steps: int, tails: float = 0.0) -> None:
        keys = _KEYS  # not how many there are: a fault that adds operations must not change anybody's noise
        rng = np.random.default_rng(seed)
        own, kept = rng.standard_normal((size, steps, keys)), rng.standard_normal((size, steps + 1, 1))
        along = (kept[:, 1:] + 0.6 * kept[:, :-1]) / np.hypot(1.0, 0.6)  # neighbouring steps resemble each other
        self._factor = np.exp(sigma * (np.sqrt(0.75) * own + 0.5 * along)) if sigma else np.ones_like(own)
        self._jitter = rng.random((size, steps, keys))
        if tails:
            chance = rng.random((size, steps, keys))
            self._factor = np.where(chance < tails, (2.0 + 3.0 * chance / tails) * self._factor, self._factor)

    def of(self, rank: int, step: int, key: int) -> float:
        return float(self._factor[rank, step, key % _KEYS])

    def jitter(self, rank: int, step: int, key: int) -> float:
        return float(self._jitter[rank, step, key % _KEYS])


def run(program: Program, size: int, steps: int, effects: Effects, seed: int) -> Run:
    """Run ``steps`` steps on ``size`` ranks.

    Raises:
        RuntimeError: the programs wait for each other for ever.
    """
    programs = [[list(program(rank, step)) for step in range(steps)] for rank in range(size)]
    noise = _Noise(effects.noise, seed, size, steps, effects.tails)
    busy: list[tuple[list[int], list[int]]] = [([], []) for _ in range(size)]
    done = Run([], [])
    for _ in range(PASSES if effects.beside > 1.0 else 1):
        done = _pass(programs, noise, effects, busy)
        busy = [_occupied(rank) for rank in done.ranks]
    return done


def _pass(
    programs: list[list[list[Op]]], noise: _Noise, effects: Effects, busy: list[tuple[list[int], list[int]]]
) -> Run:
    calls: dict[tuple[object, ...], _Call] = {}
    done = Run([[] for _ in programs], [[] for _ in programs])
    turns = [_rank(r, steps, noise, effects, busy[r], calls, done) for r, steps in enumerate(programs)]
    waiting = list(range(len(turns)))
    while waiting:
        still = []
        moved = False
        for rank in waiting:
            came_further = next(turns[rank], None)  # None: it is through
            moved = moved or came_further is not False
            still += [rank] if came_further is not None else []
        if not moved:
            raise RuntimeError(f"ranks {still[:8]} wait for each other for ever")
        waiting = still
    return done


def _rank(
    rank: int, steps: list[list[Op]], noise: _Noise, effects: Effects, busy: tuple[list[int], list[int]],
    calls: dict[tuple[object, ...], _Call], done: Run,
) -> Generator[bool, None, None]:  # fmt: skip
    """One rank's life. Yields when it has to wait for others: True when it came further since the last time."""
    host = 1_000_000
    streams: dict[str, int] = {COMPUTE: 0}
    counts: dict[object, int] = {}
    open_calls: dict[str, tuple[_Call, Ran]] = {}  # by label: not yet resolved
    last_of_stream: dict[str, str] = {}
    ends: dict[str, int] = {}
    moved = True

    def resolve(label: str) -> Generator[bool, None, int]:
        """The end of the call ``label`` on this rank, once all its members have arrived."""
        nonlocal moved
        if label in ends:
            return ends[label]
        call, ran = open_calls.pop(label)
        while (last := call.last()) is None:
            yield moved
            moved = False
        moved = True
        spread = int(effects.jitter * noise.jitter(rank, ran.step, ran.op.key))
        ran.stop = last + call.transfer + spread
        streams[ran.op.stream] = ends[label] = ran.stop
        return ran.stop

    for step, ops in enumerate(steps):
        begun = host
        for op in ops:
            factor = noise.of(rank, step, op.key)
            begin = host
            host += int(op.host * factor)
            if op.what in {"host", "input", "pause"}:
                done.ranks[rank].append(Ran(op, step, begin, begin, host))
            elif op.what == "kernel":
                if op.stream in last_of_stream:
                    yield from resolve(last_of_stream.pop(op.stream))
                start = max(host + LAUNCH, streams.get(op.stream, 0) + GAP)
                stop = start + _slowed(start, int(op.device * factor), busy, effects.beside)
                streams[op.stream] = stop
                done.ranks[rank].append(Ran(op, step, begin, host, host + CALL, start, stop))
                host += CALL
            elif op.what in {"call", "pair", "ring"}:
                if op.stream in last_of_stream:
                    yield from resolve(last_of_stream.pop(op.stream))
                computed = 0 if op.ahead else streams[COMPUTE] + GAP
                arrives = max(host + LAUNCH, streams.get(op.stream, 0) + GAP, computed)
                ran = Ran(op, step, begin, host, host + CALL, arrives)
                done.ranks[rank].append(ran)
                # the same factor on all members: that of the group's first rank
                transfer = int(op.device * noise.of(min(op.group), step, op.key))
                call = _arrive(rank, op, arrives, transfer, counts, calls)
                label = op.label or f"{op.stream}:{len(ends) + len(open_calls)}:{step}:{op.key}"
                ends.pop(label, None)
                open_calls[label] = (call, ran)
                last_of_stream[op.stream] = label
                host += CALL
            elif op.what == "join":
                yield from resolve(op.label)
                streams[COMPUTE] = max(streams[COMPUTE], ends[op.label])
                done.ranks[rank].append(Ran(op, step, begin, host, host + US))
                host += US
            elif op.what == "sync":
                for stream in list(last_of_stream):
                    yield from resolve(last_of_stream.pop(stream))
                until = max(host + CALL, *(end + 3 * US for end in streams.values()))
                done.ranks[rank].append(Ran(op, step, begin, host, until))
                host = until
            else:
                raise ValueError(op.what)
        done.marks[rank].append((begun, host))
    for stream in list(last_of_stream):
        yield from resolve(last_of_stream.pop(stream))


def _arrive(
    rank: int, op: Op, at: int, transfer: int, counts: dict[object, int], calls: dict[tuple[object, ...], _Call]
) -> _Call:
    """Note the arrival; the n-th call of a group is the same call on all its members."""
    if op.what == "ring":
        number = counts[op.axis, op.group] = counts.get((op.axis, op.group), -1) + 1

        def of(member: int) -> _Call:
            return calls.setdefault(("ring", op.axis, op.group, number, member), _Call(_near(op.group, member)))

        touched = [of(member) for member in _near(op.group, rank)]
        own = of(rank)
    else:
        sides = op.group if op.what == "call" else ((rank, op.peer) if op.kind == "send" else (op.peer, rank))
        who = (op.axis, op.what, sides)
        number = counts[who] = counts.get(who, -1) + 1
        own = calls.setdefault((*who, number), _Call(tuple(sorted(set(sides)))))
        touched = [own]
    for call in touched:
        call.arrived[rank] = at
        call.transfer = max(call.transfer, transfer)
    return own


def _near(group: tuple[int, ...], rank: int) -> tuple[int, ...]:
    place = group.index(rank)
    return tuple(sorted({group[place - 1], rank, group[(place + 1) % len(group)]}))


def _occupied(ran: list[Ran]) -> tuple[list[int], list[int]]:
    """When communication kernels of a rank were on the device: starts and ends, in order and apart."""
    spans = sorted((r.start, r.stop) for r in ran if r.op.what in {"call", "pair", "ring"})
    starts: list[int] = []
    stops: list[int] = []
    for start, stop in spans:
        if stops and start <= stops[-1]:
            stops[-1] = max(stops[-1], stop)
        else:
            starts.append(start)
            stops.append(stop)
    return starts, stops


def _slowed(start: int, alone: int, busy: tuple[list[int], list[int]], beside: float) -> int:
    """How long a kernel takes that would take ``alone``, when it runs ``beside`` times slower in the busy spans."""
    if beside <= 1.0 or not busy[0]:
        return alone
    starts, stops = busy
    now, left = start, float(alone)
    place = max(bisect_right(starts, now) - 1, 0)
    while left > 0 and place < len(starts):
        if now < starts[place]:
            free = min(left, starts[place] - now)
            now, left = now + int(free), left - free
        if left > 0 and now < stops[place]:
            able = (stops[place] - now) / beside
            part = min(left, able)
            now, left = now + int(part * beside), left - part
        place += 1
    return now + int(left) - start

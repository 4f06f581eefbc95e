"""Align the calls of one communicator on all its ranks.

All ranks ran one sequence of calls, the program, and each recorded a part of it. Ranks that agree call by call with the
most common sequence need no alignment. Every other rank is aligned with the program known so far, by the hypothesis
that explains most (``hypotheses``). Calls that only this rank recorded are added to the program, so that ranks aligned
later can match them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.hypotheses import COMMS_ID, ORDER, SEQ, Hypothesis, agrees, best_pairing
from rankscope.analysis.matching.sequences import CallSequence

__all__ = ["Program", "agree_on_program"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


@dataclass(slots=True)
class Program:
    """``table[c, m]``: the row by which member ``m`` took part in call ``c``, -1 where it has no record of it."""

    table: I64
    methods: list[str] = field(default_factory=list)
    """Identities by which the calls were recognised, each once."""
    contradicted: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Identity that was rejected -> members on which order, ends or step marks contradict it."""
    unmatched: list[int] = field(default_factory=list)
    """Members none of whose calls was matched with a call of another member."""


def agree_on_program(sequences: Sequence[CallSequence]) -> Program:
    """Align the sequences of a communicator's members, of which there are at least two."""
    leader = _leader(sequences)
    first = sequences[leader]
    table = np.full((len(first), len(sequences)), -1, np.int64)
    table[:, leader] = first.rows
    program = Program(table)
    others = []
    for member, own in enumerate(sequences):
        if member == leader:
            continue
        if agrees(first, own):
            program.table[:, member] = own.rows
            _note(program, _identity(first, own))
            if _unlike(first.comms_id, own.comms_id):
                program.contradicted[COMMS_ID].append(member)
        else:
            others.append(member)
    known = first
    for member in sorted(others, key=lambda m: -len(sequences[m])):
        known = _add(program, known, sequences[member], member)
    return program


def _leader(sequences: Sequence[CallSequence]) -> int:
    """Return the index of the most frequent sequence; among equally frequent ones, of the longest."""
    keys = [(hash(s.must.tobytes()), hash(s.step.tobytes())) for s in sequences]
    often = Counter(keys)
    return max(range(len(sequences)), key=lambda m: (often[keys[m]] > 1, often[keys[m]], len(sequences[m]), -m))


def _identity(one: CallSequence, other: CallSequence) -> str:
    if len(one) and (one.comms_id >= 0).all() and not _unlike(one.comms_id, other.comms_id):
        return COMMS_ID
    return SEQ if len(one) and (one.seq >= 0).all() and (other.seq >= 0).all() else ORDER


def _unlike(one: I64, other: I64) -> bool:
    return bool((one >= 0).all() and (other >= 0).all() and len(one) and not np.array_equal(one, other))


def _note(program: Program, method: str) -> None:
    if method not in program.methods:
        program.methods.append(method)


def _add(program: Program, known: CallSequence, own: CallSequence, member: int) -> CallSequence:
    """Add a member's calls to the program and return the program as a sequence."""
    best = best_pairing(known, own)
    a, b = best.pairs
    if not best.size:
        program.unmatched.append(member)
        return known
    _note(program, best.name if best.name in (COMMS_ID, SEQ) else ORDER)
    _contradictions(program, known, own, member, best)
    program.table[a, member] = own.rows[b]
    alone = np.setdiff1d(np.arange(len(own)), b)
    if not len(alone):
        return known
    # Calls that only this member recorded so far are shifted to the program's clock and step numbers.
    apart = (known.end[a] - own.end[b]).astype(np.float64)
    order = np.argsort(own.end[b], kind="stable")
    ahead = np.interp(own.end[alone].astype(np.float64), own.end[b][order].astype(np.float64), apart[order])
    more = own.chosen(alone)
    more.start = more.start + ahead.astype(np.int64)
    more.end = more.end + ahead.astype(np.int64)
    more.step = np.where(more.step >= 0, more.step + _later(known.step[a], own.step[b]), -1)
    if best.name != SEQ:
        more.seq = np.full(len(alone), -1, np.int64)
        more.comms_id = np.full(len(alone), -1, np.int64)
    rows = np.full((len(alone), program.table.shape[1]), -1, np.int64)
    rows[:, member] = own.rows[alone]
    # They go after the last earlier call that both have: the calls of a member are in order, whatever its clock shows.
    after = np.searchsorted(b, alone)
    place = np.concatenate((np.arange(len(known)), np.append(a, len(known))[after] - 0.5))
    if len(b):
        place[len(known) :] = np.where(after == len(b), a[-1] + 0.5, place[len(known) :])
    end = np.concatenate((known.end, more.end))
    order = np.lexsort((end, place))
    program.table = np.concatenate((program.table, rows))[order]
    return _joined(known, more, order)


def _joined(one: CallSequence, other: CallSequence, order: I64) -> CallSequence:
    def column(name: str) -> NDArray[np.generic]:
        return np.asarray(np.concatenate((getattr(one, name), getattr(other, name)))[order])

    return CallSequence(*(column(name) for name in CallSequence.__slots__))  # type: ignore[arg-type]


def _later(mine: I64, theirs: I64) -> int:
    """Return by how much the program's step numbers exceed the member's, by the majority of the pairs."""
    known = (mine >= 0) & (theirs >= 0)
    if not known.any():
        return 0
    values, counts = np.unique(mine[known] - theirs[known], return_counts=True)
    return int(values[np.argmax(counts)])


def _contradictions(
    program: Program,
    known: CallSequence,
    own: CallSequence,
    member: int,
    best: Hypothesis,
) -> None:
    a, b = best.pairs
    for name, mine, theirs in ((COMMS_ID, known.comms_id, own.comms_id), (SEQ, known.seq, own.seq)):
        said = (mine[a] >= 0) & (theirs[b] >= 0)
        if said.any() and (mine[a] != theirs[b])[said].mean() > 0.5:
            program.contradicted[name].append(member)

"""Identity of each call as the trace of a rank records it, as numbers that are comparable between ranks.

Some attributes must agree on all members of a call and others may differ: sizes differ between ranks where shards,
tokens or objects are uneven, types are spelled in several ways, and a trace may lack either. A missing attribute never
prevents a match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.communicators import canonical, is_point_to_point
from rankscope.analysis.matching.once import Once, distinct
from rankscope.analysis.rank.view import RankView

__all__ = ["SYMMETRIC", "TOGETHER", "CallSignatures", "Codes", "call_signatures", "must_agree", "spelled_kinds"]

I64 = NDArray[np.int64]

TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Kinds that no rank can leave before every rank has arrived. Others, such as a small message, may be sent before the
receiver waits for them."""

SYMMETRIC = TOGETHER - {"all_to_all"}
"""Kinds that end on all ranks at the same time. An all-to-all ends later on ranks that send or receive more."""

EQUAL_SIZES = frozenset({"all_reduce", "broadcast", "reduce"})
"""Kinds whose element count is the same on all ranks. In other kinds it may differ by rank: uneven shards, tokens,
objects."""

TYPES = {
    "float32": "float", "float16": "half", "float64": "double", "int64": "long", "int32": "int", "int16": "short",
    "uint8": "byte", "int8": "char",
}  # fmt: skip
"""Type names of NumPy and JAX -> those of PyTorch."""


class Codes:
    """Assigns integers to texts and tuples, equal integers to equal values on all ranks."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {None: -1}

    def of(self, values: Sequence[object]) -> I64:
        """Return the integer of each value, -1 of None."""
        for value in set(values) - self._known.keys():
            self._known[value] = len(self._known)
        return np.fromiter(map(self._known.__getitem__, values), np.int64, len(values))


@dataclass(slots=True)
class CallSignatures:
    """Attributes of one rank's calls; arrays of shape (calls of the rank,), comparable between ranks."""

    kind: I64
    dtype: I64
    """-1 where the trace has no type."""
    size: I64
    """Element count of kinds that have the same on all ranks, -1 where the trace has none; 0 for other kinds."""
    may: I64
    comms_id: I64
    together: NDArray[np.bool_]
    symmetric: NDArray[np.bool_]


def spelled_kinds(kinds: list[str]) -> list[str]:
    """Return the kinds in canonical spelling (``communicators.canonical``)."""
    known = {kind: canonical(kind) for kind in set(kinds)}
    return [known[k] for k in kinds]


def call_signatures(view: RankView, kinds: list[str], codes: Codes, once: Once) -> CallSignatures:
    """Read the attributes of one rank's calls. ``kinds`` are its kinds in canonical spelling."""
    calls = view.trace.collectives
    inputs, outputs = calls.in_elements.astype(np.int64), calls.out_elements.astype(np.int64)
    largest = np.maximum(inputs, outputs)
    # There are few distinct kinds and types: each is tested once.
    used, which = once(distinct, kinds)
    pair, equal, together, symmetric = (
        np.array([test(k) for k in used], np.bool_)[which]
        for test in (is_point_to_point, EQUAL_SIZES.__contains__, TOGETHER.__contains__, SYMMETRIC.__contains__)
    )
    types, of_type = once(distinct, calls.dtype)
    ids, of_id = once(distinct, calls.comms_id)
    plain = [_type(d) for d in types]
    return CallSignatures(
        kind=codes.of(["p2p" if is_point_to_point(k) else k for k in used])[which],
        # The receiver of a message may not record its type, and each side of a pair records its own element count only.
        dtype=np.where(pair, 0, codes.of([("dtype", d) if d else None for d in plain])[of_type]),
        size=np.where(equal | pair, np.maximum(largest, -1), 0),
        may=_mixed(inputs, outputs),
        comms_id=codes.of([i or None for i in ids])[of_id],
        together=together,
        symmetric=symmetric,
    )


def _type(dtype: str) -> str:
    """Return the canonical spelling of a type: ``c10::BFloat16``, ``torch.bfloat16`` -> ``bfloat16``."""
    plain = dtype.lower().removeprefix("c10::").removeprefix("torch.")
    return TYPES.get(plain, plain)


def must_agree(call_signatures: Sequence[CallSignatures], rows: Sequence[I64]) -> list[I64]:
    """Combine the attributes that must agree on all members of a communicator into one integer a call.

    The kind always has to agree. Type and size have to agree too, unless a member lacks them for most of its calls or
    none of its type names occurs on the first member.
    """
    sized = all((t.size[r] >= 0).mean() > 0.5 for t, r in zip(call_signatures, rows, strict=True))
    types = [_distinct(t.dtype[r]) for t, r in zip(call_signatures, rows, strict=True)]
    typed = all((t.dtype[r] >= 0).mean() > 0.5 for t, r in zip(call_signatures, rows, strict=True))
    typed = typed and all(np.isin(own, types[0]).any() for own in types)
    return [
        _mixed(_mixed(t.kind[r], t.dtype[r] if typed else zero), t.size[r] if sized else zero)
        for t, r, zero in ((t, r, np.zeros(len(r), np.int64)) for t, r in zip(call_signatures, rows, strict=True))
    ]


def _distinct(values: I64) -> I64:
    """Return the distinct values, of which there is one in most cases."""
    return values[:1] if (values == values[:1]).all() else np.unique(values)


def _mixed(one: I64, other: I64) -> I64:
    """Hash two integers into one; collisions are negligible in practice."""
    mixed = one.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ (other.astype(np.uint64) + np.uint64(0x7F4A7C15))
    return np.asarray((mixed * np.uint64(0xBF58476D1CE4E5B9)).view(np.int64))

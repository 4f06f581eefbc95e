"""Faults of a rank, each planted into a healthy simulated program.

A fault keeps the key of every operation that it changes, so that the same noise falls on the same work with and without
it; what it adds has keys of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .engine import US, Op

__all__ = ["Fault", "changed"]

_OWN_KEYS = 1_024


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    ``kind`` is one of ``slow_device`` (all kernels take ``size`` times as long), ``slow_norms`` (so do norms alone,
    which run beside communication only), ``slow_host`` (so does the host's work), ``input`` (the loader takes ``size``
    ms more), ``pause`` (the host stands still for ``size`` ms before the backward), ``sync`` (``size``
    synchronisations spread over the step, each with some Python around it), ``bigger`` (matrix products and attention
    take ``size`` times as long, as by longer sequences: their shapes say so), ``link`` (every call along ``axis`` that
    one of these ranks takes part in is ``size`` times as long) and ``hot_expert`` (expert kernels take ``size`` times
    as long, and their all-to-all longer by half of that share).
    """

    kind: str
    ranks: tuple[int, ...]
    size: float
    when: str = "always"
    """``always``, ``turns`` (each rank in its turn), ``late`` (from the middle of the window), ``burst`` (one step)."""
    axis: str = ""
    """Of ``link``: which groups."""

    def hits(self, rank: int, step: int, steps: int) -> bool:
        """Whether it is there on this rank in this step."""
        if rank not in self.ranks:
            return False
        if self.when == "turns":
            return self.ranks[step % len(self.ranks)] == rank
        if self.when == "late":
            return step >= steps // 2
        if self.when == "burst":
            return step == steps // 2
        return True


def changed(ops: Sequence[Op], fault: Fault, rank: int, step: int, steps: int) -> list[Op]:
    """The operations of one step with the fault in them."""
    if not fault.hits(rank, step, steps):
        return list(ops)
    kind, size = fault.kind, fault.size
    if kind == "slow_device":
        return [replace(op, device=int(op.device * size)) if op.what == "kernel" else op for op in ops]
    if kind == "slow_norms":
        return [replace(op, device=int(op.device * size)) if op.name.startswith("norm") else op for op in ops]
    if kind == "slow_host":
        return [replace(op, host=int(op.host * size)) for op in ops]
    if kind == "input":
        return [replace(op, host=op.host + int(size * 1000 * US)) if op.what == "input" else op for op in ops]
    if kind == "bigger":
        return [
            replace(op, device=int(op.device * size), shape=(int(op.shape[0] * size), *op.shape[1:]))
            if op.what == "kernel" and op.name.startswith(("mm", "flash"))
            else op
            for op in ops
        ]
    if kind == "hot_expert":
        return [
            replace(op, device=int(op.device * size), shape=(int(op.shape[0] * size), *op.shape[1:]))
            if op.what == "kernel" and op.name.startswith("expert")
            else _fuller(op, size)
            if op.kind == "all_to_allv"
            else op
            for op in ops
        ]
    if kind == "link":
        return [replace(op, device=int(op.device * size)) if op.group and op.axis == fault.axis else op for op in ops]
    if kind == "pause":
        middle = next(n for n, op in enumerate(ops) if op.name.startswith("mm_grad") or n > len(ops) // 2)
        pause = Op("pause", key=_OWN_KEYS, host=int(size * 1000 * US))
        return [*ops[:middle], pause, *ops[middle:]]
    if kind == "sync":
        every = max(len(ops) // int(size), 1)
        mended: list[Op] = []
        for number, op in enumerate(ops):
            mended.append(op)
            if number % every == every - 1 and op.what == "kernel":
                mended.append(Op("sync", key=_OWN_KEYS + number, name="aten::item", host=60 * US))
        return mended
    raise ValueError(kind)


def _fuller(op: Op, size: float) -> Op:
    """An all-to-all of a hot expert: ``size`` times the tokens come to it, and leave it again with the second one."""
    comes = op.label.endswith("dispatch")
    return replace(
        op,
        device=int(op.device * (1 + 0.5 * (size - 1))),
        elements=op.elements if comes else int(op.elements * size),
        out_elements=int(op.out_elements * size) if comes else op.out_elements,
    )

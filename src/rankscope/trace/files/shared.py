"""What the traces of a job share in memory: one object for equal lists of ranks and names, and scratch files.

Each of a thousand ranks names the thousand ranks of its groups. Stored separately, these lists would take more memory
than the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rankscope.trace.columns import RankTrace
from rankscope.trace.scratch import Scratch

__all__ = ["Shared"]


@dataclass(slots=True)
class Shared:
    """Values that occurred in earlier traces."""

    _ranks: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _lists: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    _scratch: Scratch = field(default_factory=Scratch)

    def take(self, trace: RankTrace) -> RankTrace:
        """Replace values of the trace, in place, by equal ones of earlier traces, and move large columns to files."""
        keep = self._texts.setdefault
        trace.strings = [keep(text, text) for text in trace.strings]
        for column in ("kind", "comms_id", "dtype"):
            texts = tuple(getattr(trace.collectives, column))
            if texts not in self._lists:
                self._lists[texts] = [keep(text, text) for text in texts]
            setattr(trace.collectives, column, self._lists[texts])
        trace.groups = [replace(g, ranks=self._ranks.setdefault(g.ranks, g.ranks)) for g in trace.groups]
        self._scratch.take(trace.events, trace.python, trace.collectives)
        return trace

"""One object for values that the ranks of a job have in common: lists of ranks, and names.

Each of a thousand ranks names the thousand ranks of its groups. Stored separately, these lists would take more memory
than the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rankscope.trace.columns import RankTrace

__all__ = ["Shared"]


@dataclass(slots=True)
class Shared:
    """Values that occurred in earlier traces."""

    _ranks: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)

    def take(self, trace: RankTrace) -> RankTrace:
        """Replace values of the trace, in place, by equal ones of earlier traces."""
        keep = self._texts.setdefault
        trace.strings = [keep(text, text) for text in trace.strings]
        for column in ("kind", "comms_id", "dtype"):
            setattr(trace.collectives, column, [keep(t, t) for t in getattr(trace.collectives, column)])
        trace.groups = [replace(g, ranks=self._ranks.setdefault(g.ranks, g.ranks)) for g in trace.groups]
        return trace

"""HTA's breakdown of user annotations over our columns.

Source: HolisticTraceAnalysis 0.5.0, ``hta.analyzers.breakdown_analysis``.
"""

from __future__ import annotations

import numpy as np

from rankscope.analysis.hta.events import HtaRank
from rankscope.analysis.hta.numbers import Record, sums_by_name
from rankscope.trace.columns import Category

__all__ = ["user_annotation_breakdown"]

_MOST = 5
_STEP = "ProfilerStep#"
"""Steps are annotations too, each with a name of its own. The report has them elsewhere."""


def user_annotation_breakdown(rank: HtaRank) -> list[Record]:
    """Return the time of each annotation by name: of the work launched inside, and on the host."""
    trace = rank.trace
    events = trace.events
    step = np.array([text.startswith(_STEP) for text in trace.strings], bool)
    return [
        {"annotation": name} | record
        for name, category in (
            ("gpu_user_annotation", Category.GPU_USER_ANNOTATION),
            ("user_annotation", Category.USER_ANNOTATION),
        )
        for record in sums_by_name(trace, np.flatnonzero((events.category == category) & ~step[events.name]), _MOST)
    ]

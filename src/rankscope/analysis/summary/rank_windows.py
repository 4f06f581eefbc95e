"""Summaries of all ranks of one window, one record each."""

from __future__ import annotations

from rankscope.analysis.summary.calls import call_columns
from rankscope.analysis.summary.steps import step_columns
from rankscope.analysis.summary.texts import Texts
from rankscope.analysis.summary.work import work_columns
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.rank_window import RankWindow

__all__ = ["summarise"]


def summarise(window: WindowResult) -> list[RankWindow]:
    """Return the summary of each rank whose trace could be analysed, in order of rank."""
    return [_summarise(window, column) for column in range(len(window.views))]


def _summarise(window: WindowResult, column: int) -> RankWindow:
    view, texts = window.views[column], Texts()
    meta = view.trace.meta
    work, calls = work_columns(view, texts), call_columns(window, column, texts)
    return RankWindow(
        rank=view.rank,
        attempt=window.attempt,
        window=window.window,
        world_size=meta.world_size,
        host=meta.host,
        device=(meta.device or "unnamed accelerator") if view.device else None,
        backend=meta.backend,
        versions=dict(meta.versions),
        strings=texts.strings,
        steps=step_columns(window, column),
        work=work,
        calls=calls,
        incomplete=window.partial.get(view.rank),
    )

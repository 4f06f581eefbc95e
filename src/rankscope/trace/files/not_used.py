"""Files that were offered and not used, in words: folders may hold thousands of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rankscope.records.report import SourceFile
from rankscope.rundir.foreign import shown

__all__ = ["MOST_LISTED", "listed", "why_unused"]

MOST_LISTED = 100
"""Files that are no traces are listed up to this number, for a reader who looks for one of them."""
_MOST_REASONS = 3


def listed(sources: Sequence[SourceFile]) -> tuple[list[SourceFile], str | None]:
    """Return the files that a report lists, and a remark on those left out. No file is left out that was to be a
    trace."""
    ignored = [source for source in sources if source.status == "ignored"]
    if len(ignored) <= MOST_LISTED:
        return list(sources), None
    gone = {id(source) for source in ignored[MOST_LISTED:]}
    kept = [source for source in sources if id(source) not in gone]
    first = ignored[MOST_LISTED]
    example = f"{shown(first.path)} ({first.reason})"
    return kept, f"{len(gone):,} further files are no traces and are not listed, such as {example}"


def why_unused(sources: Sequence[SourceFile]) -> str:
    """Return the most frequent reasons, each with a file; empty without any."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        if source.reason:
            path = shown(source.path)
            reasons[source.reason.removeprefix(f"{path}: ")].append(path)
    ordered = sorted(reasons.items(), key=lambda item: (-len(item[1]), item))
    words = [
        f"{paths[0]}: {reason}" if len(paths) == 1 else f"{len(paths):,} files such as {paths[0]}: {reason}"
        for reason, paths in ordered[:_MOST_REASONS]
    ]
    return "; ".join([*words, *["..."] * (len(ordered) > _MOST_REASONS)])

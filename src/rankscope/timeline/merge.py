"""All ranks as one gzip file of Chrome JSON, which the Perfetto UI and chrome://tracing open."""

from __future__ import annotations

import contextlib
import gzip
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from rankscope.analysis.windows.analyse import WindowResult
from rankscope.errors import ConfigError, RunDirError
from rankscope.records.manifest import RunManifest
from rankscope.rundir.files import temporary_beside
from rankscope.timeline.prepare import PreparedTimeline, prepare_timeline
from rankscope.timeline.selection import Selection
from rankscope.timeline.writer import Merged, lines
from rankscope.trace.files.load import LoadResult

__all__ = ["Merged", "merge", "write"]

Progress = Callable[[str], None]
Written = Callable[[int, int], None]
"""Called now and then with the bytes written and their upper bound, uncompressed."""
_REPORT_EVERY = 1 << 20
"""Bytes between two calls."""


def merge(
    load: LoadResult,
    output: Path,
    selection: Selection | None = None,
    manifest: RunManifest | None = None,
    *,
    replace: bool = False,
    progress: Progress | None = None,
    written: Written | None = None,
) -> Merged:
    """Write the merged timeline, atomically.

    Args:
        load: traces of all ranks; those that ``selection`` excludes are still used to align the clocks.
        output: the file, usually ``cluster.trace.json.gz``.
        selection: None for everything within the default limit.
        manifest: of the run, if there is one.
        replace: whether an older file may be replaced.
        progress: called with a line of text for each stage.
        written: called as the file grows.

    Raises:
        AnalysisError: no trace is usable.
        ConfigError: the selection is empty, or cannot fit.
        RunDirError: the file exists and may not be replaced, or cannot be written.
    """
    say = progress or (lambda _text: None)
    selection = selection or Selection()
    if output.exists() and not replace:
        raise RunDirError(f"{output} exists already and is not overwritten; give another --output")
    say(f"aligning {len(load.traces)} traces")
    prepared = prepare_timeline(load, manifest)
    wanted = _wanted(prepared, selection)
    merged = Merged(output, notes=list(prepared.notes))
    say("writing the timeline")
    try:
        write(output, lines(prepared, wanted, selection, merged), merged, written)
    except OSError as error:
        raise RunDirError(f"cannot write {output}: {error.strerror or error}; give another --output") from error
    return merged


def _wanted(prepared: PreparedTimeline, selection: Selection) -> list[tuple[WindowResult, int]]:
    """Return window and column of each rank to be shown."""
    wanted = [
        (window, column)
        for window in prepared.windows
        for column, view in enumerate(window.views)
        if selection.has_rank(view.rank)
    ]
    if not wanted:
        ranks = sorted({v.rank for w in prepared.windows for v in w.views})
        raise ConfigError(f"none of the --ranks was recorded; there are {', '.join(map(str, ranks[:20]))}")
    if selection.steps is not None and not any(
        selection.has_step(int(n)) for w, c in wanted for n in w.views[c].trace.steps.number
    ):
        numbers = [int(n) for w, c in wanted for n in w.views[c].trace.steps.number]
        there = f"there are {min(numbers)} to {max(numbers)}" if numbers else "the traces have no step marks"
        raise ConfigError(f"none of the --steps was recorded; {there}")
    return wanted


def write(output: Path, text: Iterable[str], merged: Merged, written: Written | None = None) -> None:
    """Write lines to a file that is either complete or absent, and count them in ``merged``.

    Raises:
        OSError: it cannot be written.
    """
    report = written or (lambda _done, _most: None)
    output.parent.mkdir(parents=True, exist_ok=True)
    reported = 0
    with temporary_beside(output) as temporary:
        with temporary.open("wb") as raw, _packed(raw, output) as stream:
            for line in text:
                data = line.encode("ascii")
                merged.json_bytes += len(data)
                stream.write(data)
                if merged.json_bytes - reported >= _REPORT_EVERY:
                    reported = merged.json_bytes
                    report(reported, max(reported, merged.most_bytes))
        report(merged.json_bytes, merged.json_bytes)
        merged.file_bytes = temporary.stat().st_size
        temporary.replace(output)


@contextlib.contextmanager
def _packed(raw: BinaryIO, output: Path) -> Iterator[BinaryIO]:
    """Compress by gzip if the name ends so. It contains no time stamp: the same traces give the same file."""
    if output.suffix != ".gz":
        yield raw
        return
    # Level 4 compresses as fast as the lines are formatted.
    with gzip.GzipFile("", "wb", 4, raw, mtime=0) as packed, io.BufferedWriter(packed, 1 << 20) as stream:
        yield stream

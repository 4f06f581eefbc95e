"""A part of what was recorded: some steps, or one window, as if nothing else had been recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TypeAlias

import numpy as np

from rankscope.analysis.rank.select import take
from rankscope.analysis.windows.all_windows import usable
from rankscope.errors import ConfigError
from rankscope.records.manifest import RunManifest
from rankscope.trace.columns import RankTrace, Steps
from rankscope.trace.files.load import LoadResult

__all__ = ["StepRange", "only_part"]

StepRange: TypeAlias = "range | slice | tuple[int, int]"
"""Steps by their numbers: ``range(13, 16)``, ``slice(13, None)``, or ``(13, 15)`` with the first and the last one."""

Key = tuple[int, int]


def only_part(
    load: LoadResult,
    manifest: RunManifest | None,
    *,
    steps: StepRange | None = None,
    window: int | tuple[int, int] | None = None,
) -> tuple[LoadResult, RunManifest | None]:
    """Return the traces of one window, or of some steps, and the manifest without the other windows.

    Work that a device still did for earlier steps is kept, as a recording that begins there has it. As there, a rank's
    lateness at the begin of the first step counts for that step, so that the cost over few steps is less certain than
    its stated error. What is measured without a trace (step logs, health) remains that of the whole run. The arguments
    are not changed.

    Args:
        load: traces and files.
        manifest: of the run, if there is one.
        steps: by number.
        window: its number, or (attempt, window).

    Raises:
        ConfigError: the window or all of the steps were not recorded, or the steps are no range of numbers.
    """
    if steps is None and window is None:
        return load, manifest
    traces = usable(load.traces)
    said = []
    if window is not None:
        key = _window(traces, window)
        traces = [t for t in traces if (t.attempt, t.window) == key]
        said.append(f"only window {key[1]}" + (f" of attempt {key[0]}" if isinstance(window, tuple) else ""))
    if steps is not None:
        first, last = _bounds(steps)
        traces = _of_steps(traces, first, last)
        said.append(f"only step{'' if first == last else 's'} {_in_words(first, last)}")
    note = f"{' and '.join(said)} of what was recorded: the rest was left out, as asked for"
    return _without_others(load, traces, note), _without_windows(manifest, traces)


def _window(traces: Sequence[RankTrace], window: int | tuple[int, int]) -> Key:
    known = sorted({(t.attempt, t.window) for t in traces})
    fits = [key for key in known if (key if isinstance(window, tuple) else key[1]) == window]
    if len(fits) == 1:
        return fits[0]
    attempts = len({attempt for attempt, _ in known}) > 1
    names = [f"({attempt}, {number})" if attempts else str(number) for attempt, number in known]
    there = f"recorded: {', '.join(names[:12])}{' ...' if len(names) > 12 else ''}" if names else "nothing was recorded"
    if fits:
        raise ConfigError(f"window {window} was recorded in {len(fits)} attempts; name (attempt, window); {there}")
    raise ConfigError(f"window {window} was not recorded; {there}. Name one of them, or none for all")


def _bounds(steps: StepRange) -> tuple[int, float]:
    """Return the first and the last step, both included; the last may be infinite."""
    first: int
    end: float
    wrong = f"steps={steps!r} is no range of step numbers; write (13, 15), range(13, 16) or slice(13, None)"
    if isinstance(steps, tuple):
        if len(steps) != 2 or not all(isinstance(number, int) for number in steps):
            raise ConfigError(wrong)
        first, end = steps[0], steps[1] + 1
    elif isinstance(steps, (range, slice)):
        if steps.step not in (None, 1):
            raise ConfigError(f"steps={steps!r} leaves steps out; only steps that follow each other can be analysed")
        first = steps.start or 0
        end = np.inf if steps.stop is None else steps.stop
    else:
        raise ConfigError(wrong)
    if first < 0 or end < 0:
        raise ConfigError(f"steps={steps!r}: steps are named by their numbers, which are not negative")
    if end <= first:
        raise ConfigError(f"steps={steps!r} contains no step; the last one must not come before the first")
    return first, end - 1


def _in_words(first: int, last: float) -> str:
    return str(first) if first == last else f"from {first} on" if last == np.inf else f"{first} to {last:.0f}"


def _of_steps(traces: Sequence[RankTrace], first: int, last: float) -> list[RankTrace]:
    found = [cut for trace in traces if (cut := _cut(trace, first, last)) is not None]
    if found:
        return found
    numbers = [number for trace in traces for number in trace.steps.number.tolist()]
    if not numbers:
        raise ConfigError(
            "steps can be chosen in traces with step marks (ProfilerStep#N) only, and these have none: call the "
            "profiler's step() in the script, or name no steps"
        )
    there = f"there are steps {min(numbers)} to {max(numbers)}"
    raise ConfigError(f"steps {_in_words(first, last)} were not recorded; {there}. Name some of them")


def _cut(trace: RankTrace, first: int, last: float) -> RankTrace | None:
    """Return the trace with these steps only; None if it has none of them, and itself if it has no others."""
    chosen = np.flatnonzero((trace.steps.number >= first) & (trace.steps.number <= last))
    if not len(chosen):
        return None
    if len(chosen) == len(trace.steps):
        return trace
    events, steps = trace.events, trace.steps
    begin, end = int(steps.start[chosen].min()), int(steps.end[chosen].max())
    mine = np.isin(events.step, chosen)
    on_device = events.stream >= 0
    # work of no chosen step that the device did meanwhile: launched before, or by a call that is not in the trace
    running = on_device & (events.end > begin) & (events.start < end) & (events.step < chosen[0])
    kept = take(trace, np.flatnonzero(mine | running))
    place = np.full(len(steps) + 1, -1, np.int32)
    place[chosen] = np.arange(len(chosen), dtype=np.int32)
    kept.events.step = place[kept.events.step]
    calls = (trace.python.start >= begin) & (trace.python.start < end)
    return replace(
        kept,
        steps=Steps(**{f.name: getattr(steps, f.name)[chosen] for f in fields(Steps)}),
        python=replace(trace.python, **{f.name: getattr(trace.python, f.name)[calls] for f in fields(trace.python)}),
        memory=[
            replace(device, step_peaks=[device.step_peaks[n] for n in chosen.tolist() if n < len(device.step_peaks)])
            for device in trace.memory
        ],
    )


def _without_others(load: LoadResult, traces: list[RankTrace], note: str) -> LoadResult:
    kept = {(trace.source, trace.rank) for trace in traces}
    sources = [
        replace(source, status="ignored", reason="recorded nothing of the part that was asked for")
        if source.status == "used" and (source.path, source.rank) not in kept
        else source
        for source in load.sources
    ]
    return replace(load, traces=traces, sources=sources, notes=[*load.notes, note])


def _without_windows(manifest: RunManifest | None, traces: Sequence[RankTrace]) -> RunManifest | None:
    if manifest is None:
        return None
    kept = {(trace.attempt, trace.window) for trace in traces}
    return replace(manifest, windows=[w for w in manifest.windows if (w.attempt, w.window) in kept])

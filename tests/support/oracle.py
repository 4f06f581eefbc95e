"""Shares and waits of a window, computed independently by their definitions: plain Python over the trace's JSON.

Nothing of the product is used, and nothing that it derives: names are told apart by rules of this file, times are
integers of nanoseconds as the file has them, sets of time are lists of pairs. Slow, and meant to be. Where the two
disagree, one of them is wrong: find out which.

Definitions (docs/metrics.md says the same to readers):

- The window of a rank runs from its first step mark to the end of its last step or of the last device work that a step
  launched. Steps that some device had not run when recording ended are left out on all ranks. What the device still
  had queued before the first step is no part of it.
- Compute, communication and copies are unions of intervals. Exposed is what nothing before it in that order covers;
  idle is what is covered by nothing.
- A call's arrival is its start. How far the ranks' clocks are apart is no question of this file: the distances are
  given to it. A wait is the last arrival minus the own one, and no longer than the call. It counts where every member
  was being recorded when the first one arrived.
- Without a device, operators of the main thread are compute and the backend's events communication. Such an event ends
  late where its thread lost its core: where the main thread waited (it ran no operator for 0.1 ms, outside of the data
  loader) and went on shortly before, the call had ended then.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Spans = list[tuple[int, int]]
MISSING = 0.05
"""A step that lacks more than this share of the kernels of its launches was not run to its end."""


def union(spans: Spans) -> Spans:
    """Return the union as disjoint intervals in order."""
    joined: Spans = []
    for start, end in sorted(s for s in spans if s[1] > s[0]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def length(spans: Spans) -> int:
    """Return the time that the intervals cover."""
    return sum(end - start for start, end in union(spans))


def clipped(spans: Spans, low: int, high: int) -> Spans:
    """Return the parts of the intervals within the bounds."""
    return [(max(start, low), min(end, high)) for start, end in spans if min(end, high) > max(start, low)]


@dataclass
class Call:
    """One communication call of a rank, ns of its own clock."""

    start: int
    end: int
    key: tuple[Any, ...]
    """Group, and other properties that must be equal on all ranks."""
    step: int


@dataclass
class Rank:
    """One trace."""

    number: int
    steps: list[tuple[int, int, int]]
    """Number, start and end of each step."""
    compute: Spans = field(default_factory=list)
    comm: Spans = field(default_factory=list)
    copies: Spans = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    start: int = 0
    end: int = 0
    first: int = 0
    """Begin of the recording, as far as the trace shows it."""

    def shares(self) -> dict[str, float]:
        """Return shares in per cent of the window; ``overlap_pct`` in per cent of communication."""
        span = self.end - self.start
        compute, comm, copies = (clipped(s, self.start, self.end) for s in (self.compute, self.comm, self.copies))
        alone, both, all_three = length(compute), length(compute + comm), length(compute + comm + copies)
        communication = length(comm)
        found = {
            "compute_pct": 100 * alone / span,
            "comm_pct": 100 * communication / span,
            "exposed_comm_pct": 100 * (both - alone) / span,
            "memcpy_pct": 100 * (all_three - both) / span,
            "idle_pct": 100 * (span - all_three) / span,
        }
        if communication:
            found["overlap_pct"] = 100 * (communication - both + alone) / communication
        return found


@dataclass
class Waits:
    """Waits in ms per step by rank, and the number of calls that they are summed over."""

    waited: dict[int, float]
    calls: int


def read(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return complete events with times in ns (``start``, ``end``), and the other keys of the file."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    whole = json.loads(data)
    base = int(whole.get("baseTimeNanoseconds", 0))
    events = []
    for event in whole.pop("traceEvents"):
        if event.get("ph") == "X" and "dur" in event:
            start = round(float(event["ts"]) * 1000) + base
            events.append({**event, "start": start, "end": start + round(float(event["dur"]) * 1000)})
    return events, whole


def window(paths: list[Path]) -> list[Rank]:
    """Return all ranks of a window."""
    files = [read(path) for path in paths]
    whole = [_steps_run(events) for events, _ in files]
    common = set.intersection(*(set(numbers) for numbers in whole))
    last = max(common)
    return [_rank(events, about, last) for events, about in files]


def recorded_together(ranks: list[Rank], offsets_us: dict[int, float]) -> None:
    """Begin each window where all ranks are recorded, if some recordings began more than a step earlier."""
    first = {rank.number: rank.first + round(1000 * offsets_us.get(rank.number, 0.0)) for rank in ranks}
    usual = statistics.median(end - start for rank in ranks for _, start, end in rank.steps)
    if max(first.values()) - min(first.values()) > usual:
        for rank in ranks:
            own = max(first.values()) - (first[rank.number] - rank.first)
            rank.start = max(rank.start, own)


def waits(ranks: list[Rank], offsets_us: dict[int, float]) -> Waits:
    """Return waits per step of calls that all ranks made: the n-th of the same group and name in the same step.

    ``offsets_us``: what is added to a rank's clock to bring it to the common one.
    """
    moved = [round(1000 * offsets_us.get(rank.number, 0.0)) for rank in ranks]
    tables: list[dict[tuple[Any, ...], Call]] = []
    for rank in ranks:
        counted: dict[tuple[Any, ...], int] = defaultdict(int)
        table: dict[tuple[Any, ...], Call] = {}
        for call in sorted(rank.calls, key=lambda c: c.start):
            key = (call.step, call.key)
            table[(*key, counted[key])] = call
            counted[key] += 1
        tables.append(table)
    shared = set.intersection(*(set(table) for table in tables))
    first = max(rank.first + offset for rank, offset in zip(ranks, moved, strict=True))
    waited = [0] * len(ranks)
    for key in shared:
        arrivals = [table[key].start + offset for table, offset in zip(tables, moved, strict=True)]
        until = min([max(arrivals), *(t[key].end + offset for t, offset in zip(tables, moved, strict=True))])
        if min(arrivals) >= first:
            for place, arrival in enumerate(arrivals):
                waited[place] += max(until - arrival, 0)
    return Waits({rank.number: ns / 1e6 / len(rank.steps) for rank, ns in zip(ranks, waited, strict=True)}, len(shared))


_MARK = re.compile(r"ProfilerStep#(\d+)$")


def _marks(events: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Return the outermost steps of the main thread."""
    found = []
    for event in events:
        mark = _MARK.match(str(event["name"]))
        if mark and event.get("cat") == "user_annotation" and event["pid"] == event["tid"]:
            found.append((event["start"], -event["end"], int(mark.group(1))))
    kept: list[tuple[int, int, int]] = []
    for start, negative, number in sorted(found):
        if not kept or -negative > kept[-1][2]:
            kept.append((number, start, -negative))
    return kept


def _on_device(event: dict[str, Any]) -> bool:
    return event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}


def _launches(events: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Return correlation -> calls of the CUDA runtime and driver."""
    found = defaultdict(list)
    for event in events:
        if event.get("cat") in {"cuda_runtime", "cuda_driver"} and event["args"].get("correlation", 0) > 0:
            found[event["args"]["correlation"]].append(event)
    return found


def _step_at(time: int, steps: list[tuple[int, int, int]]) -> int | None:
    return next((number for number, start, end in steps if start <= time < end), None)


def _steps_run(events: list[dict[str, Any]]) -> list[int]:
    """Return the numbers of the steps, up to the last one that the device ran to its end."""
    steps = _marks(events)
    ran = {event["args"].get("correlation") for event in events if _on_device(event)}
    if not ran:
        return [number for number, _, _ in steps]
    asked: dict[int, int] = defaultdict(int)
    missing: dict[int, int] = defaultdict(int)
    for correlation, calls in _launches(events).items():
        for call in calls:
            step = _step_at(call["start"], steps)
            if step is not None and "LaunchKernel" in call["name"]:
                asked[step] += 1
                missing[step] += correlation not in ran
    whole = [place for place, (number, _, _) in enumerate(steps) if missing[number] <= MISSING * asked[number]]
    return [number for number, _, _ in steps[: whole[-1] + 1 if whole else len(steps)]]


def _rank(events: list[dict[str, Any]], about: dict[str, Any], last: int) -> Rank:
    steps = [step for step in _marks(events) if step[0] <= last]
    number = about.get("distributedInfo", about.get("rankscope", {}))["rank"]
    rank = Rank(number, steps, first=min(e["start"] for e in events if e.get("cat") != "Trace"))
    rank.start, rank.end = steps[0][1], steps[-1][2]
    if any(_on_device(event) for event in events):
        _device(rank, events, about)
    else:
        _host(rank, events, about)
    return rank


def _device(rank: Rank, events: list[dict[str, Any]], about: dict[str, Any]) -> None:
    launches = _launches(events)
    ours = "rankscope" in about
    streams: dict[Any, list[tuple[int, int, bool]]] = defaultdict(list)
    for event in sorted((e for e in events if _on_device(e)), key=lambda e: e["start"]):
        calls = launches.get(event["args"].get("correlation", -1), [])
        before = [c for c in calls if c["start"] <= event["start"]] or calls[:1]
        asked = before[-1]["start"] if before else None
        step = None if asked is None else _step_at(asked, rank.steps)
        if ours and asked is not None and asked >= rank.steps[-1][2]:
            continue  # of steps after the window, which stayed open for the device
        span = (event["start"], event["end"])
        kind = _kind(event)
        (rank.comm if kind == "comm" else rank.copies if kind == "copy" else rank.compute).append(span)
        streams[event["args"].get("stream", event["tid"])].append((*span, step is not None))
        if step is not None:
            rank.end = max(rank.end, event["end"])
            if kind == "comm":
                rank.calls.append(Call(*span, _key(event, about), step))
    for work in streams.values():
        inside = next((place for place, (_, _, launched) in enumerate(work) if launched), None)
        if inside is not None:
            rank.start = max([rank.start, *(end for _, end, _ in work[:inside])])


def _kind(event: dict[str, Any]) -> str:
    if event["cat"] != "kernel":
        return "copy"
    return "comm" if re.match(r"(void )?(nccl|rccl)", event["name"]) else "compute"


def _key(event: dict[str, Any], about: dict[str, Any]) -> tuple[Any, ...]:
    """Return the properties of a call; if a rank is in one group only, the group may be missing."""
    args = event["args"]
    groups = about.get("distributedInfo", {}).get("pg_config", [])
    ranks = args.get("Process Group Ranks") or (str(groups[0]["ranks"]) if len(groups) == 1 else "")
    return ranks, event["name"]


_HANDING_OVER = re.compile(
    r"record_param_comms$|c10d::|_c10d_functional::|symm_mem::|autograd::engine::evaluate_function|gloo:"
    r"|(?!Compiled)\w+Backward$"
)
"""Operators that call a backend, or run hooks around work."""
_WAITING = re.compile(r"_c10d_functional::wait_tensor|c10d::(barrier|monitored_barrier_)")


def _host(rank: Rank, events: list[dict[str, Any]], about: dict[str, Any]) -> None:
    """Add events without a device: operators of the main thread compute, the backend's own events communicate."""
    waiting: Spans = []
    running: Spans = []
    loading: Spans = []
    backend: list[dict[str, Any]] = []
    for event in sorted(events, key=lambda e: e["start"]):
        span, name = (event["start"], event["end"]), str(event["name"])
        if name.startswith("gloo:"):
            backend.append(event)
        elif re.match(r"enumerate\(DataLoader\)", name):
            loading.append(span)
        elif event.get("cat") == "cpu_op" and event["pid"] == event["tid"]:
            if _WAITING.match(name):
                waiting.append(span)
            elif not _HANDING_OVER.match(name):
                running.append(span)
    rank.compute = _without(union(running), union(waiting))
    _end_in_time(backend, _without([(rank.start, rank.end)], union(running + loading)))
    for event in backend:
        rank.comm.append((event["start"], event["end"]))
        step = _step_at(event["start"], rank.steps)
        if step is not None:
            key = (event["name"], event["args"].get("Process Group Ranks", ""))
            rank.calls.append(Call(event["start"], event["end"], key, step))


def _end_in_time(calls: list[dict[str, Any]], gaps: Spans) -> None:
    """End the call that a thread waited for in a gap no later than the gap."""
    for begin, resume in gaps:
        open_calls = [call for call in calls if call["start"] < resume < call["end"]]
        if resume - begin < 100_000 or not open_calls:
            continue
        awaited = min(open_calls, key=lambda call: call["end"])
        over = awaited["end"] - resume
        ended = [call["end"] for call in calls if begin < call["end"] <= resume]
        if ended and resume - max(ended) <= max(500_000, over):
            continue  # another call, which ended within the gap, explains it
        if over <= max(500_000, (resume - begin) // 2):
            awaited["end"] = resume


def _without(spans: Spans, taken: Spans) -> Spans:
    left: Spans = []
    for start, end in spans:
        for low, high in taken:
            if high > start and low < end:
                if low > start:
                    left.append((start, low))
                start = max(start, high)
        if end > start:
            left.append((start, end))
    return left

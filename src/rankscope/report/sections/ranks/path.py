"""One step: the chain of work that decides its duration, rank by rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from rankscope.causes import input_stall
from rankscope.records.report import ClusterReport
from rankscope.records.rows import CriticalPath, PathPiece
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, number, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables

__all__ = ["METRICS", "SECTION", "Lane", "lanes", "pieces", "spoken"]

METRICS: dict[str, Metric] = {
    "path_ms": Metric(
        "Critical path",
        "On the path",
        "ms",
        "How long the critical path of the step stays with this piece of work.",
        "By replay: at each moment the path is on what the next thing waited for last. Shortening work beside it gains "
        "nothing; work on it gains no more than its length, as another path may be nearly as long.",
        "HTA's critical path is that of one rank; this one passes from rank to rank in collectives.",
    ),
}
MOST_LANES = 8
MOST_ROWS = 60
SEEN = 0.004
"""Share of the step from which on a piece is drawn and labelled by itself; shorter ones are combined by kind."""
ROOM = 1.1
"""Per cent of the width that a letter takes on a page of usual width."""
_KINDS = {"compute": "compute", "transfer": "transfer", "host": "host", "launch": "idle"}
"""Kind of piece -> class of its colour."""
_LEGEND = {
    "compute": "Compute",
    "transfer": "Transfer",
    "input": "Host: input",
    "host": "Host",
    "idle": "Launch latencies and gaps",
}
_INPUT = input_stall.CAUSE.noun
"""Name of a piece of the host in the data loader."""
_SAID = {"compute": "compute", "transfer": "transfer", "host": "host", "launch": "launch latencies and gaps"}


class Box(NamedTuple):
    """A piece, in per cent of the step, and its labels."""

    x: float
    width: float
    colour: str
    title: str
    text: str = ""
    """Written inside, if there is room."""


class Lane(NamedTuple):
    """The pieces of one rank."""

    who: str
    named: bool
    boxes: list[Box]
    shapes: list[tuple[str, str]]
    """Colour, and a path in a box of 100 by 1 that holds the short pieces of that kind."""
    said: str


def lanes(path: CriticalPath, named: Sequence[int] = ()) -> list[Lane]:
    """Return a lane for each of the eight ranks with most time on the path, in the order in which it reaches them; the
    others share the last lane."""
    stay: defaultdict[int | None, float] = defaultdict(float)
    for piece in path.pieces:
        stay[piece.rank] += piece.duration_ms
    ranks = sorted((rank for rank in stay if rank is not None), key=lambda rank: -stay[rank])
    own, shared = ranks[:MOST_LANES], ranks[MOST_LANES:]
    first = {piece.rank: piece.start_ms for piece in reversed(path.pieces)}
    own.sort(key=lambda rank: first[rank])
    found = [
        _lane(f"rank {rank}", rank in named, [p for p in path.pieces if p.rank == rank], path.step_ms) for rank in own
    ]
    rest = [p for p in path.pieces if p.rank is None or p.rank in shared]
    if rest:
        found.append(_lane(f"{len(shared)} others" if shared else "shared", False, rest, path.step_ms))
    return found


def _lane(who: str, named: bool, mine: Sequence[PathPiece], step: float) -> Lane:
    boxes, short = list[Box](), dict[str, list[str]]()
    for piece in mine:
        x, width = round(100 * piece.start_ms / step, 3), round(100 * piece.duration_ms / step, 3)
        colour = "input" if piece.name == _INPUT else _KINDS.get(piece.kind, "idle")
        if piece.duration_ms >= SEEN * step:
            text_in = piece.name if piece.name and width >= ROOM * len(piece.name) else ""
            boxes.append(Box(x, width, colour, f"{_called(piece)}: {words.ms(piece.duration_ms)}", text_in))
        else:
            short.setdefault(colour, []).append(f"M{x:g} 0h{max(width, 0.02):g}v1h{-max(width, 0.02):g}z")
    total: dict[str, float] = {}
    for piece in mine:
        total[piece.kind] = total.get(piece.kind, 0.0) + piece.duration_ms
    most = sorted(total.items(), key=lambda item: -item[1])
    summary = ", ".join(f"{_SAID.get(kind, kind)} {words.ms(ms)}" for kind, ms in most)
    return Lane(who, named, boxes, [(colour, "".join(shapes)) for colour, shapes in short.items()], summary)


def _called(piece: PathPiece) -> str:
    kind = _SAID.get(piece.kind, piece.kind)
    return f"{kind}, {piece.name}" if piece.name else kind


def pieces(path: CriticalPath) -> Table:
    """Return the components of the path: equal work of one rank is combined, most time first."""
    total: defaultdict[tuple[int | None, str, str], float] = defaultdict(float)
    often: Counter[tuple[int | None, str, str]] = Counter()
    for piece in path.pieces:
        key = (piece.rank, piece.kind, piece.name)
        total[key] += piece.duration_ms
        often[key] += 1
    found = sorted(total.items(), key=lambda item: -item[1])[:MOST_ROWS]
    columns = [
        [text(name or _SAID.get(kind, kind), 60) for (_, kind, name), _ in found],
        [text(_SAID.get(kind, kind), 40) for (_, kind, _), _ in found],
        [number(rank) for (rank, _, _), _ in found],
        numbers([ms for _, ms in found]),
        numbers([100 * ms / path.step_ms for _, ms in found], 1),
        numbers([float(often[key]) for key, _ in found], 0),
    ]
    heads = [
        Column("Work"),
        Column("Kind"),
        Column("Rank", numeric=True),
        metric(METRICS["path_ms"]),
        Column("Of the step", "%", numeric=True),
        Column("Pieces", numeric=True),
    ]
    return Table("path", heads, [Row(cells) for cells in assemble(columns)])


def spoken(path: CriticalPath) -> str:
    """Return the path in one sentence, as means over the recorded steps."""
    parts = [p for p in path.parts if p.ms_per_step >= 0.01 * path.step_ms][:5]
    named = [
        f"{_SAID.get(p.kind, p.kind)} {'shared by the ranks' if p.rank is None else f'of rank {p.rank}'} "
        f"{words.ms(p.ms_per_step)}"
        for p in parts
    ]
    return f"On average the step is decided by: {', '.join(named)}." if named else ""


def _build(report: ClusterReport) -> Variables | None:
    path = report.critical_path
    if path is None or not path.pieces or path.step_ms <= 0:
        return None
    length = words.ms(path.step_ms)
    which = "the median step" if path.step is None else f"step {path.step:,}, the median one"
    shown = lanes(path, report.verdict.ranks)
    used = {colour for lane in shown for colour in (*(b.colour for b in lane.boxes), *(c for c, _ in lane.shapes))}
    return {
        "lead": f"The critical path of {which} ({length}): what each moment of it waited for. {spoken(path)}",
        "lanes": shown,
        "legend": [(key, label) for key, label in _LEGEND.items() if key in used],
        "end": length,
        "half": words.ms(path.step_ms / 2),
        "table": pieces(path),
    }


SECTION = Section("path", "One step", "One step, and its critical path", _build, METRICS, "path.html.j2", optional=True)

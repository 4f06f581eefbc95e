"""Key numbers of a running job as OpenMetrics text (https://prometheus.io/docs/specs/om/open_metrics_spec/).

The file is replaced as a whole, so that node_exporter's textfile collector can read it at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope.records.running.live import NodeLive, RankLive

__all__ = ["MOST_RANKS", "as_openmetrics"]

MOST_RANKS = 64
"""With more ranks, only the 16 with most own time are written, because each rank is a time series in the user's
database."""
_WORST = 16


def as_openmetrics(nodes: Sequence[NodeLive]) -> str:
    """Return the text, with its end mark."""
    return "".join(f"{line}\n" for line in _lines(nodes)) + "# EOF\n"


def _lines(nodes: Sequence[NodeLive]) -> Iterator[str]:
    rows = [(row, node.host) for node in nodes for row in node.ranks]
    if len(rows) > MOST_RANKS:
        rows = sorted(rows, key=lambda pair: -pair[0].own_ms)[:_WORST]
    rows.sort(key=lambda pair: pair[0].rank)
    labels = [f'{{rank="{row.rank}",host="{_escaped(host)}"}}' for row, host in rows]
    named = {rank for node in nodes for rank in node.named}
    columns: tuple[tuple[str, str, str, list[float | None]], ...] = (
        ("step_seconds", "gauge", "Median of the last 200 steps.", [row.step_ms / 1e3 for row, _ in rows]),
        ("own_seconds", "gauge", "Mean time of a step before the ranks meet.", [row.own_ms / 1e3 for row, _ in rows]),
        ("input_ratio", "gauge", "Share of the time in the data loader.", [row.input_pct / 100 for row, _ in rows]),
        ("wait_ratio", "gauge", "Share of the time that it waits in collectives.", [_ratio(row) for row, _ in rows]),
        ("idle_seconds", "gauge", "Time since the last step.", [row.idle_s for row, _ in rows]),
        ("late", "gauge", "1 where the step log names the rank.", [float(row.rank in named) for row, _ in rows]),
        ("steps", "counter", "Steps made.", [float(row.steps) for row, _ in rows]),
        ("run_seconds", "counter", "Time of all steps.", [row.seconds for row, _ in rows]),
        ("input_seconds", "counter", "Of it in the data loader.", [row.input_seconds for row, _ in rows]),
    )
    for name, kind, text, values in columns:
        if all(value is None for value in values):
            continue
        yield f"# TYPE rankscope_{name} {kind}"
        yield f"# HELP rankscope_{name} {text}"
        end = "_total" if kind == "counter" else ""
        for label, value in zip(labels, values, strict=True):
            if value is not None:
                yield f"rankscope_{name}{end}{label} {value:.9g}"


def _ratio(row: RankLive) -> float | None:
    return None if row.wait_pct is None else row.wait_pct / 100


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

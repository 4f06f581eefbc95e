"""Size of the page and time until it is ready at 2, 64 and 1,024 ranks: ``python benchmarks/page.py``. Needs Chromium.

A recorded report of two ranks is stretched: one rank is the late one, all others are like its peer. Ready is the end of
the load event by the browser's own clock, which includes our script; the best of five loads.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import rankscope  # noqa: E402
from rankscope.records.report import ClusterReport  # noqa: E402
from rankscope.report import write_report  # noqa: E402
from support.browser import Browser, browsing  # noqa: E402 - after the path to it

RUN = ROOT / "tests" / "data" / "traces" / "ddp_slow_gpu"
RANKS = (2, 64, 1024)
LATE = 1


def stretched(report: ClusterReport, ranks: int) -> ClusterReport:
    """Return the report of a job of so many ranks, of which the last but one is the late one."""
    found = copy.deepcopy(report)
    late = max(ranks - 2, LATE)

    def many(rows: list) -> list:
        by_rank = {rank: [row for row in rows if row.rank == rank] for rank in (0, LATE)}
        return [replace(row, rank=n) for n in range(ranks) for row in by_rank[LATE if n == late else 0]]

    for table in ("ranks", "idle", "steps", "queues", "health"):
        setattr(found, table, many(getattr(found, table)))
    for number, row in enumerate(found.ranks):
        row.host = f"gpu{number // 8:03d}"
    found.verdict.ranks, found.run.world_size = [late], ranks
    found.hta = {
        name: {str(n): numbers.get(str(LATE if n == late else 0)) for n in range(min(ranks, 64))}
        for name, numbers in found.hta.items()
        if isinstance(numbers, dict)
    }
    return found


def ready_ms(browser: Browser, page: Path) -> float:
    """Return how long the page takes to load, the best of five times."""
    times = []
    for _ in range(5):
        browser.open(page)
        times.append(browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd"))
    return min(times)


def main() -> None:
    """Print the table."""
    report = rankscope.analyze(RUN).record
    print("| ranks | page, kB | elements | ready, ms |\n| ---: | ---: | ---: | ---: |")
    with browsing() as browser, tempfile.TemporaryDirectory() as folder:
        for ranks in RANKS:
            page = write_report(stretched(report, ranks), Path(folder) / str(ranks))["html"]
            ready = ready_ms(browser, page)
            nodes = browser.run("return document.getElementsByTagName('*').length")
            print(f"| {ranks:,} | {page.stat().st_size / 1000:,.0f} | {nodes:,} | {ready:,.0f} |")


if __name__ == "__main__":
    main()

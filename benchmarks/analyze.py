"""Time from two recorded traces to the report: ``rankscope analyze``, and HTA with four of its analyses.

Ours is the command itself, with all analyses and the report written, first without and then with the Parquet cache.
HTA is constructed and asked for its temporal, overlap, idle time and kernel breakdowns; it writes nothing.
Everything is in: starting Python, importing, worker processes.

    python benchmarks/analyze.py
    python benchmarks/analyze.py --trace rank_0.json.gz --events 455000 --ranks 2
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from ingest import HTA, Cost, make_input, measure, recorded

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "traces" / "fsdp2_gpu_bound" / "rank_0.json.gz"
OURS = (
    "import sys\n"
    "from rankscope.cli import main\n"
    "if __name__ == '__main__':\n"
    "    code = main(['analyze', sys.argv[1], '--output', sys.argv[1] + '-report'])\n"
    "    print(code or 0)\n"
)
ASKED = HTA.rsplit("    print(", 1)[0] + (
    "    ranks = analysis.t.get_ranks()\n"
    "    analysis.get_temporal_breakdown(visualize=False)\n"
    "    analysis.get_comm_comp_overlap(visualize=False)\n"
    "    analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)\n"
    "    analysis.get_gpu_kernel_breakdown(visualize=False)\n"
    "    print(0)\n"
)


def table(costs: list[Cost]) -> str:
    first = costs[0]
    lines = [f"{'':<36}{'seconds':>10}{'CPU s':>10}{'peak MB':>10}{'times faster':>14}{'of CPU s':>10}"]
    lines += [
        f"{c.name:<36}{c.seconds:>10.2f}{c.cpu:>10.2f}{c.megabytes:>10.0f}"
        f"{first.seconds / c.seconds:>14.1f}{first.cpu / c.cpu:>10.1f}"
        for c in costs
    ]
    return "\n".join([*lines, "", "times faster: than the first line. peak MB: the largest process of the tree."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=RECORDED, help="recorded trace to repeat")
    parser.add_argument("--events", type=int, default=455_000, help="complete events of each rank")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--without-hta", action="store_true", help="measure only ours")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "traces")
        folder.mkdir()
        json_mb = make_input(folder, recorded(given.trace), given.events, given.ranks)
        print(f"{given.ranks} ranks of {given.events} events, {json_mb:.0f} MB of JSON, {os.cpu_count()} CPUs\n")
        contenders = [("rankscope analyze", OURS), ("rankscope analyze, from the cache", OURS)]
        if not given.without_hta:
            contenders.insert(0, ("HTA and four of its analyses", ASKED))
        print(table([measure(name, script, folder) for name, script in contenders]))
        report = Path(f"{folder}-report", "report.json")
        print(f"\nreport written: {report.stat().st_size / 1e6:.1f} MB of JSON" if report.exists() else "\nno report")


if __name__ == "__main__":
    main()

"""The table of hosts, rails and positions: a slow host is its first row."""

from __future__ import annotations

import pytest

from rankscope.analysis.diagnosis import empty_report
from rankscope.records.report import ClusterReport, Verdict
from rankscope.records.rows import GroupRow, RankSummary, StepRow
from rankscope.report.sections.ranks.places import SECTION, places

RANKS, PER_HOST, SLOW = 32, 8, range(8, 16)


def report(ranks: int = RANKS) -> ClusterReport:
    """Four hosts; the ranks of the second compute 12 ms where others compute 10, and arrive 2 ms late.

    In their last step all are 50 ms later, which the middle of three steps does not show. Rank 3 has no trace.
    """
    made = empty_report(None)
    made.verdict = Verdict(kind="straggler", ranks=list(SLOW))
    made.ranks = [RankSummary(rank=r, host=f"h{r // PER_HOST}", compute_pct=50.0) for r in range(ranks)]
    for rank in range(ranks):
        slow = rank in SLOW
        for step in range(3 if rank != 3 else 0):
            made.steps.append(
                StepRow(
                    attempt=0,
                    window=0,
                    step=step,
                    rank=rank,
                    duration_ms=20.0,
                    compute_ms=12.0 if slow else 10.0,
                    comm_ms=1.0,
                    exposed_comm_ms=1.0,
                    idle_ms=1.0,
                    wait_ms=0.0 if slow else 2.0,
                    # 3 ms on average, which no step has
                    cost_ms=(9.0 if slow and step == 2 else 0.0),
                    lateness_ms=(50.0 if step == 2 else 0.0) + (2.0 if slow else 0.0),
                )
            )
    nothing = dict.fromkeys(
        ("dtype", "calls_per_step", "megabytes_per_call", "wait_ms_per_step", "transfer_ms_per_step",
         "exposed_ms_per_step", "bus_gb_s")
    )  # fmt: skip
    for name, members in (("mesh_tp", [8, 9, 10, 11]), ("7", [0, 1]), ("mesh_dp", list(range(ranks)))):
        made.groups.append(GroupRow(group=name, ranks=members, collective="allreduce", **nothing))
    return made


def test_the_slow_host_comes_first_and_is_marked() -> None:
    table = places(report())
    rows = [[cell.text for cell in row.cells] for row in table.rows]
    assert rows[0][:3] == ["host", "h1", "8-15"]
    assert [cell.sort for cell in table.rows[0].cells[3:]] == [3.0, 2.0, 12.0, 10.0, 0.0]
    assert table.rows[0].mark == "named"
    assert rows[1][:2] == ["process group", "mesh_tp"]  # of that host, too
    assert {(row[0], row[1]) for row in rows} == {
        *(("host", f"h{n}") for n in range(4)),
        *(("place on each host", str(n)) for n in range(PER_HOST)),
        ("process group", "mesh_tp"),
    }  # group 7 has no name but a number, and mesh_dp is all ranks


def test_what_a_rail_is() -> None:
    (row,) = [r for r in places(report()).rows if [c.text for c in r.cells[:2]] == ["place on each host", "3"]]
    # ranks 3, 11, 19 and 27, of which 3 has no trace; one of the other three is late, so their middle is not
    assert row.cells[2].text == "11, 19, 27"
    assert [cell.sort for cell in row.cells[3:]] == [0.0, 0.0, 10.0, 10.0, 2.0]


@pytest.mark.parametrize(("ranks", "there"), [(16, False), (24, True)])
def test_few_ranks_are_looked_over_one_by_one(ranks: int, there: bool) -> None:
    assert (SECTION.build(report(ranks)) is not None) == there


def test_a_host_that_is_a_group_too_is_one_place() -> None:
    made = report()
    made.groups[0].ranks = list(SLOW)
    first, second = places(made).rows[:2]
    assert [cell.text for cell in first.cells[:3]] == ["host, process group", "h1, mesh_tp", "8-15"]
    assert second.cells[2].text != "8-15"

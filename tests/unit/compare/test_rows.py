"""Changes in a hand-made run are reported with size and rank, and nothing else is reported."""

from __future__ import annotations

import pytest

from rankscope.compare.compare import compare
from rankscope.compare.show import DIFF_WRITERS
from rankscope.compare.sides.side import Side
from rankscope.records.diff import DiffRow
from rankscope.records.rows import MemoryRow

from .conftest import KERNELS


def told(before, after) -> dict[str, DiffRow]:
    return {row.name: row for row in compare(before, after).told}


def test_equal_runs_differ_in_nothing(make_side) -> None:
    diff = compare(make_side(), make_side())
    assert (diff.verdict, diff.told, diff.step.change) == ("same", [], 0.0)
    assert diff.parts == []
    assert len(diff.rows) > 10


@pytest.mark.parametrize(("factor", "found"), [(1.05, True), (1.01, False), (0.95, True), (0.99, False)])
def test_five_percent_on_one_kernel_are_found_and_one_percent_are_not(make_side, factor: float, found: bool) -> None:
    rows = told(make_side(), make_side({"mm": (10, 500.0 * factor)}))
    assert ("mm" in rows) == found
    assert not set(rows) - {"mm"}
    if found:
        assert rows["mm"].change == pytest.approx(10 * 0.5 * (factor - 1))
        assert rows["mm"].ranks == [1]


def test_a_kernel_beside_communication_is_never_a_slower_kernel(make_side) -> None:
    slower = {name: (count, 1.5 * us) for name, (count, us) in KERNELS.items()}
    diff = compare(make_side(), make_side(slower, alone=False))
    assert not [row for row in diff.told if row.kind == "kernel"]
    (beside,) = [row for row in diff.rows if row.kind == "beside"]
    assert beside.change == pytest.approx(0.5 * 7.0)


def test_new_gone_and_more_kernels(make_side) -> None:
    before, after = make_side({"old": (2, 100.0)}), make_side({"new": (3, 100.0), "norm": (40, 50.0)})
    rows = told(before, after)
    assert {name: row.status for name, row in rows.items() if row.kind == "kernel"} == {
        "old": "gone",
        "new": "new",
        "norm": "changed",
    }
    assert rows["new"].change == pytest.approx(0.3)
    assert rows["norm"].change == pytest.approx(1.0)
    assert rows["norm"].detail.startswith("20 -> 40 a step")
    assert (rows["launches"].before, rows["launches"].after) == (34.0, 55.0)


def test_a_slower_link(make_side) -> None:
    rows = told(make_side(), make_side(transfer_us=100.0))
    assert not rows
    before, after = make_side(), make_side(transfer_us=150.0)
    for own in after.ranks:
        own.calls.transfer_ns = [150_000] * len(own.calls.step)
    row = told(before, after)["all_reduce 4 MB, group of 2"]
    assert row.change == pytest.approx(0.05)
    assert "bus 40.0 -> 26.7 GB/s" in row.detail


@pytest.mark.parametrize(
    ("column", "before", "after", "name"),
    [
        ("syncs", [0, 0, 0, 0], [5, 5, 5, 5], "syncs"),
        ("compilations", [0, 0, 0, 0], [0, 0, 3, 0], "compilations"),
        ("copied_bytes", [10, 10, 10, 10], [20, 20, 20, 20], "copied bytes"),
        ("allocations", [3, 3, 7, 11], [4, 3, 5, 4], None),
        ("syncs", [0, 0, 0, 0], [0, 2, 0, 0], None),
    ],
)
def test_counts_that_no_step_of_the_other_run_has(make_side, column: str, before, after, name: str | None) -> None:
    rows = told(make_side(steps={column: before}), make_side(steps={column: after}))
    assert list(rows) == ([name] if name else [])


def test_a_trace_that_lost_records_counts_for_nothing(make_side) -> None:
    after = make_side(steps={"launches": [5, 5, 5, 5]})
    after.ranks[1].incomplete = "60 % of the device records are missing"
    assert "launches" not in told(make_side(), after)


def test_other_shapes_of_the_same_operator_are_one_row(make_side) -> None:
    before, after = make_side({"bmm": (4, 100.0)}), make_side({"bmm": (4, 300.0)})
    for side, shape in ((before, "[[8, 4]]"), (after, "[[16, 4]]")):
        own = side.ranks[1]
        own.strings.append(shape)
        place = own.strings.index("bmm")
        own.work.shapes = [len(own.strings) - 1 if op == place else -1 for op in own.work.operator]
    rows = told(before, after)
    assert [name for name, row in rows.items() if row.kind == "kernel"] == ["bmm"]
    assert rows["bmm"].change == pytest.approx(4 * 0.2)


def with_modules(side: Side, **modules: str) -> Side:
    """Kernels of rank 1 by the module that launches them: all are of the operator mm."""
    for own in side.ranks:
        places = {own.strings.index(name): module for name, module in modules.items() if name in own.strings}
        own.work.module = [-1] * len(own.work.operator)
        for row, operator in enumerate(own.work.operator):
            if operator in places:
                own.strings.append(places[operator])
                own.work.module[row] = len(own.strings) - 1
                own.work.operator[row] = own.strings.index("mm")
    return side


def test_modules_tell_the_same_operator_apart(make_side) -> None:
    def run(us: float, module: str = "GPT/Mlp") -> Side:
        return with_modules(make_side({"other": (10, us)}), mm="GPT/Attention", other=module)

    (row,) = [row for row in compare(run(200.0), run(300.0)).told if row.kind == "kernel"]
    assert (row.name, row.module, row.ranks) == ("mm", "GPT/Mlp", [1])
    assert row.change == pytest.approx(1.0)  # 10 kernels of 100 us more each
    assert "mm in GPT/Mlp on rank 1" in DIFF_WRITERS["terminal"]([compare(run(200.0), run(300.0))])
    assert compare(run(200.0), run(200.0, "GPT/GatedMlp")).told == []  # a class that is called otherwise


def test_modules_count_where_both_runs_have_them(make_side) -> None:
    before = make_side({"other": (10, 200.0)})
    for own in before.ranks:
        own.work.operator = [own.strings.index("mm") if own.text(n) == "other" else n for n in own.work.operator]
    after = with_modules(make_side({"other": (10, 200.0)}), mm="GPT/Attention", other="GPT/Mlp")
    diff = compare(before, after)
    assert diff.told == []
    assert {row.module for row in diff.rows} == {""}


def test_memory_peak_and_leak(make_side) -> None:
    def memory(peaks: list[int]) -> MemoryRow:
        most = max(peaks)
        return MemoryRow(
            attempt=0,
            window=0,
            rank=0,
            file=None,
            peak_allocated_bytes=most,
            peak_reserved_bytes=most,
            end_allocated_bytes=0,
            end_reserved_bytes=0,
            segment_allocs=None,
            segment_frees=None,
            peak_per_step=peaks,
        )

    before, after = make_side(), make_side()
    before.report.memory, after.report.memory = (
        [memory([1 << 30] * 4)],
        [memory([1 << 30, 17 << 26, 9 << 27, 19 << 26])],
    )
    rows = told(before, after)
    assert rows["memory peak"].change == 3 << 26
    assert rows["memory growth a step"].after == 1 << 26


def test_waiting_is_distinguished(make_side) -> None:
    after = make_side()
    for own in after.ranks:
        own.calls.wait_ns = [7_000_000 * (own.rank == 0)] * len(own.calls.step)
    (wait,) = [row for row in compare(make_side(), after).rows if row.kind == "wait"]
    assert (wait.change, wait.ranks, wait.told) == (7.0, [0], False)


@pytest.mark.parametrize(("after", "told"), [((2, 3, 3, 2), False), ((4, 4, 5, 4), False), ((5, 5, 6, 5), True)])
def test_calls_whose_number_varies_from_step_to_step(make_side, after: tuple[int, ...], told: bool) -> None:
    """Records were lost: a run has 3, 2, 3 and 4 calls in its steps, and only more than 4 in each step are a change."""
    sides = []
    for counts in ((3, 2, 3, 4), after):
        sides.append(make_side())
        for own in sides[-1].ranks:
            steps = [step for step, count in enumerate(counts) for _ in range(count)]
            for name, column in vars(own.calls).items():
                setattr(own.calls, name, column[:1] * len(steps))
            own.calls.step = steps
    (row,) = [row for row in compare(*sides).rows if row.kind == "collective"]
    assert (row.told, row.change) == (told, pytest.approx(0.1 * (sum(after) - 12) / 4))

"""Parameters that are gathered twice in a step."""

from __future__ import annotations

from rankscope.analysis.tables.modules import gathered_again
from rankscope.records.rows import ModuleRow


def row(module: str, collective: str, calls: float, megabytes: float | None, transfer: float) -> ModuleRow:
    return ModuleRow(
        module=module, group="dp", ranks=[0, 1], collective=collective, calls_per_step=calls,
        megabytes_per_call=megabytes, wait_ms_per_step=0.0, transfer_ms_per_step=transfer, exposed_ms_per_step=transfer,
        bus_gb_s=None,
    )  # fmt: skip


def test_the_second_gather_of_each_module_is_redundant() -> None:
    """Of 2 blocks 4 and 6 ms are gathered twice, 2 + 3 ms too often; the root is gathered once, gradients are none."""
    rows = [
        row("(root)", "all_gather", 1.0, 67.0, 9.0),
        row("blocks.0", "all_gather", 2.0, 25.0, 4.0),
        row("blocks.1", "all_gather", 4.0, 30.0, 6.0),  # two micro-batches, each with two
        row("blocks.0", "reduce_scatter", 2.0, 25.0, 4.0),
    ]
    assert gathered_again(rows) == (5.0, 55_000_000)
    assert gathered_again(rows[:1]) == (0.0, 0)

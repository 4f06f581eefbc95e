"""A PCIe link with fewer lanes than possible, or with fewer lanes or an older generation than the peers' links."""

from __future__ import annotations

from rankscope.diagnose.base.rule import Case, Rule, state_finding, with_peers
from rankscope.records.report import Finding

__all__ = ["RULE"]


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
    found = []
    for row, peers in with_peers(evidence, alone=True):
        best = max([p.pcie_width or 0 for p in peers] + [row.pcie_width_max or 0])
        generation = max((p.pcie_generation or 0 for p in peers), default=0)
        lines = []
        if row.pcie_width is not None and row.pcie_width < best:
            lines.append(f"{row.pcie_width} of {best} lanes are in use.")
        # an idle link reduces its speed; the best in the window is compared, and only for devices that were busy
        if row.pcie_generation is not None and row.pcie_generation < generation:
            lines.append(f"It runs at generation {row.pcie_generation}, its peers' at generation {generation}.")
        if not lines:
            continue
        if row.pcie_replays:
            lines.append(f"{row.pcie_replays} transfers were repeated within the recorded windows.")
        title = f"Rank {row.rank}'s GPU has a degraded PCIe link"
        found.append(state_finding("pcie_degraded", [row.rank], title, lines, "high" if len(lines) > 1 else "medium"))
    return found


RULE = Rule(
    kind="pcie_degraded",
    noun="a degraded PCIe link",
    advice=("Reseat or check the GPU and its riser; nvidia-smi -q shows the link beside what it could be.",),
    find=_find,
)

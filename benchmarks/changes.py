"""Changes of level in a series: false alarms and detections of several methods.

    python benchmarks/changes.py [--series 200]

Rows are kinds of series: noise alone (1 and 4 %), with outliers, on two levels by turns, and with neighbours that
depend on each other (0.5 and 0.8). Columns are the share of series without any change in which one is told, and the
share of series with one of +10 % in the middle that is found within two places. Ways: ours; ruptures alone
(segmentation by KernelCPD, linear, penalty 3 noise^2 log n); Apache Otava with its defaults, where it is installed
(``pip install --no-deps apache-otava``: it pins an old numpy). All three leave out changes below 3 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from rankscope.statistics.changes import changes

LENGTHS = (12, 20, 60, 200)
KINDS = ("1 %", "4 %", "outliers", "two levels", "depends 0.5", "depends 0.8")
LEAST = 0.03


def series(kind: str, size: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return a series around 100 without a change."""
    noise = random.normal(0, 1, size + 50)
    if kind.startswith("depends"):
        for i in range(1, len(noise)):
            noise[i] += float(kind.split()[1]) * noise[i - 1]
    noise = noise[50:]
    if kind == "outliers":
        struck = random.random(size) < 0.08
        return 100 * (1 + 0.02 * noise) * np.where(struck, 1 + random.exponential(0.5, size), 1)
    if kind == "two levels":
        return np.where(random.random(size) < 0.3, 106, 100) * (1 + 0.01 * noise)
    return 100 * (1 + (0.01 if kind == "1 %" else 0.04) * noise)


def ours(values: np.ndarray[Any, Any]) -> list[int]:
    return [change.index for change in changes(values, least=LEAST)]


def ruptures_alone(values: np.ndarray[Any, Any]) -> list[int]:
    import ruptures

    noise = np.median(np.abs(np.diff(values))) / 0.954
    model = ruptures.KernelCPD(kernel="linear", min_size=3).fit(values.reshape(-1, 1))
    cuts = model.predict(pen=3 * noise**2 * np.log(len(values)))
    parts = np.split(values, cuts[:-1])
    levels = [float(np.median(part)) for part in parts]
    pairs = zip(cuts[:-1], levels[:-1], levels[1:], strict=True)
    return [cut for cut, a, b in pairs if abs(b / a - 1) >= LEAST]


def otava(values: np.ndarray[Any, Any]) -> list[int]:
    from otava.analysis import compute_change_points

    found, _ = compute_change_points(list(values), window_len=30, max_pvalue=0.001, min_magnitude=LEAST)
    return [change.index for change in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=200, help="of each kind and length (default: 200)")
    count = parser.parse_args().series
    ways: dict[str, Callable[[np.ndarray[Any, Any]], list[int]]] = {"ours": ours, "ruptures": ruptures_alone}
    try:
        import otava as _  # noqa: F401

        ways["otava"] = otava
    except ImportError:
        print("otava is not installed: left out", file=sys.stderr)
    print(f"{'length':>6}  {'series':12} " + "".join(f"{way:>10} false, found" for way in ways))
    random = np.random.default_rng(0)
    for size in LENGTHS:
        for kind in KINDS:
            healthy = [series(kind, size, random) for _ in range(count)]
            changed = [series(kind, size, random) * np.where(np.arange(size) < size // 2, 1, 1.1) for _ in range(count)]
            cells = []
            for way in ways.values():
                false = sum(bool(way(values)) for values in healthy) / count
                found = sum(any(abs(place - size // 2) <= 2 for place in way(values)) for values in changed) / count
                cells.append(f"{100 * false:14.1f} % {100 * found:5.0f} %")
            print(f"{size:6}  {kind:12} " + "".join(cells), flush=True)


if __name__ == "__main__":
    main()

"""How often 95 % intervals of a mean over autocorrelated steps hold the truth: Student's and those of block bootstraps.

    python benchmarks/intervals.py [--jobs 1000] [--tails]

The values of successive steps are drawn from an autoregressive process (AR(1)) of known mean; ``--tails`` draws its
shocks from Student's distribution with three degrees of freedom. Columns: the normal quantile and Student's (what
rankscope uses), both with the variance of a mean three times that of independent steps; the moving-block bootstrap
(Kuensch, 1989) and the stationary one (Politis and Romano, 1994), percentiles of 999 means, of blocks as long as the
cube root of the number of steps. A cell has the intervals that hold the truth, in per cent, and their median half width
in standard deviations of the mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.stragglers.statistics import confidence, mean_error

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
NORMAL = 1.96
DRAWS = 999
BEFORE = 50
"""Steps that are left out, so that the process has forgotten its beginning."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--tails", action="store_true")
    arguments = parser.parse_args()
    rng = np.random.default_rng(20)
    ways: dict[str, Callable[[F64], tuple[float, float]]] = {
        "normal": lambda own: _around(own, NORMAL),
        "Student": lambda own: _around(own, confidence(len(own))),
        "moving blocks": lambda own: _percentiles(own, _moving(rng, len(own))),
        "stationary": lambda own: _percentiles(own, _stationary(rng, len(own))),
    }
    print("| autocorrelation | steps | " + " | ".join(ways) + " |\n| --- | --- |" + " --- |" * len(ways))
    for again in (0.0, 0.3, 0.5, 0.7):
        for steps in (6, 10, 20, 50):
            jobs = drawn(rng, arguments.jobs, steps, again, tails=arguments.tails)
            spread = float(jobs.mean(axis=1).std())
            cells = []
            for way in ways.values():
                low, high = np.array([way(own) for own in jobs]).T
                held = float(((low <= 0) & (high >= 0)).mean())
                cells.append(f"{100 * held:.0f} %, {float(np.median(high - low)) / 2 / spread:.1f}")
            print(f"| {again} | {steps} | " + " | ".join(cells) + " |", flush=True)
    return 0


def drawn(rng: np.random.Generator, jobs: int, steps: int, again: float, *, tails: bool) -> F64:
    """Return values of mean 0, shape (jobs, steps), each of which keeps the share ``again`` of the one before."""
    size = (jobs, BEFORE + steps)
    shocks: F64 = rng.standard_t(3, size) if tails else rng.standard_normal(size)
    values = shocks.copy()
    for step in range(1, size[1]):
        values[:, step] += again * values[:, step - 1]
    return values[:, BEFORE:]


def _around(own: F64, wide: float) -> tuple[float, float]:
    middle, error = float(own.mean()), wide * mean_error(own)
    return middle - error, middle + error


def _percentiles(own: F64, drawn: I64) -> tuple[float, float]:
    low, high = np.quantile(own[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _block(steps: int) -> int:
    return max(round(steps ** (1 / 3)), 2)


def _moving(rng: np.random.Generator, steps: int) -> I64:
    """Return the steps of each draw, shape (draws, steps): blocks that begin anywhere within the window."""
    length = _block(steps)
    begins = rng.integers(0, steps - length + 1, (DRAWS, -(-steps // length)))
    return (begins[:, :, None] + np.arange(length)).reshape(DRAWS, -1)[:, :steps]


def _stationary(rng: np.random.Generator, steps: int) -> I64:
    """The same with blocks of random length, which go on at the beginning of the window behind its end."""
    begins = rng.random((DRAWS, steps)) < 1.0 / _block(steps)
    begins[:, 0] = True
    since = np.maximum.accumulate(np.where(begins, np.arange(steps), 0), axis=1)
    first = np.take_along_axis(rng.integers(0, steps, (DRAWS, steps)), since, axis=1)
    return np.asarray((first + np.arange(steps) - since) % steps)


if __name__ == "__main__":
    raise SystemExit(main())

"""What rankscope.region, mark and the like cost a training script in each call, ns: without rankscope, armed between
windows, and, for comparison, ``record_function``.

    python benchmarks/in_job.py

Processor time, best of 15 repetitions of 100,000 calls.
"""

from __future__ import annotations

import time
import timeit
from typing import Any

import torch

import rankscope
from rankscope import in_job

CALLS, REPEAT = 100_000, 15
STATEMENTS = {
    'with region("a")': 'with rankscope.region("a"): pass',
    'with region("a"), made before': "with made: pass",
    "decorated function": "decorated()",
    'mark("a", x=1)': 'rankscope.mark("a", x=1)',
    "describe(tokens=1)": "rankscope.describe(tokens=1)",
    "capture()": "rankscope.capture()",
    "active()": "rankscope.active()",
    "step()": "rankscope.step()",
}


class Agent:
    """Takes each call and does nothing, so that what the script pays for the way is measured."""

    def mark(self, name: str, values: dict[str, Any]) -> None:
        """Nothing."""

    def describe(self, numbers: dict[str, Any]) -> None:
        """Nothing."""

    def capture(self, steps: int, detail: str, reason: str) -> bool:
        """Nothing."""
        return bool(steps and detail and reason)

    def failed(self, what: str, error: Exception) -> None:
        """Nothing."""


def main() -> None:
    """Print the table."""
    names = {
        "rankscope": rankscope,
        "made": rankscope.region("a"),
        "decorated": rankscope.region("a")(lambda: None),
        "record_function": torch.profiler.record_function,
    }

    def ns(statement: str) -> float:
        return (
            min(timeit.repeat(statement, timer=time.process_time, globals=names, number=CALLS, repeat=REPEAT))
            / CALLS
            * 1e9
        )

    alone = {name: ns(statement) for name, statement in STATEMENTS.items()}
    in_job.compiling, in_job.agent = torch.compiler.is_compiling, Agent()
    print(f"torch {torch.__version__}\n\n{'ns per call':32} {'without':>8} {'armed':>8}")
    for name, statement in STATEMENTS.items():
        print(f"{name:32} {alone[name]:8.0f} {ns(statement):8.0f}")
    print(f"{'with record_function':32} {ns('with record_function(chr(97)): pass'):8.0f}")


if __name__ == "__main__":
    main()

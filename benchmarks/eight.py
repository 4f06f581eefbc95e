"""Eight ranks, four meshes, one faulty rank: whether it is named with its cause, and no rank that waits for it.

    python benchmarks/eight.py --out OUT                                    8 GPUs, under ten minutes
    python benchmarks/eight.py --out OUT --ranks 2                          the same on 2 GPUs
    python benchmarks/eight.py --out OUT --ranks 8 --backend gloo --tiny    on a CPU, to try it out

Rank 5 (on fewer ranks the last) is stalled for 60 ms, computes 120 products more or pauses for 50 ms, in every step.
Columns: "right*" means that a rank which only waits for the bad one, inside its tensor or pipeline group, was blamed;
"told" counts planted causes that some finding names; "measured" is the median step of the job under torchrun alone,
with minus without the fault, in ms. Both must be held against each other with the step's own noise in mind.
"""

from __future__ import annotations

import sys

from harness import Harness, arguments, captures
from jobs import Job

LARGE = "--width 2048 --layers 4 --batch 16"
TINY = "--width 64 --layers 4 --batch 8 --sequence 64 --vocabulary 256"
MESHES = {
    "fsdp2": "--parallel fsdp2",
    "hsdp": "--parallel hsdp --degree 2",
    "tp": "--parallel tp --degree 2",
    "pp": "--parallel pp --degree 2 --micro 4",
}
FIRST = {"fsdp2": "input_stall", "hsdp": "extra_compute", "tp": "host_pause", "pp": "extra_compute"}
"""Mesh -> the fault that is run even if time is short."""
FAULTS = ("input_stall", "extra_compute", "host_pause")


def partners(mesh: str, bad: int, ranks: int) -> tuple[int, ...]:
    """Return the peers of ``bad`` in groups of two: neighbours in a tensor group, half the job apart in a pipeline."""
    if mesh == "tp":
        return (bad ^ 1,)
    return ((bad + ranks // 2) % ranks,) if mesh == "pp" else ()


def jobs(ranks: int, tiny: bool) -> tuple[list[Job], list[Job]]:
    """Return (jobs of each mesh, healthy and with its first fault; jobs with the other faults)."""
    bad = min(5, ranks - 1)
    first, others = list[Job](), list[Job]()
    for mesh, flags in MESHES.items():
        words = ("gpt.py", *flags.split(), *(TINY if tiny else LARGE).split())
        first.append(Job(f"{mesh}_healthy", words))
        for fault in FAULTS:
            job = Job(f"{mesh}_{fault}", words, f"{fault}@{bad}", {bad: fault}, partners=partners(mesh, bad, ranks))
            (first if fault == FIRST[mesh] else others).append(job)
    return first, others


def main() -> int:
    args = arguments(__doc__, ranks=8, capture="inline", budget_s=540).parse_args()
    if args.ranks % 2:
        raise SystemExit(f"--ranks {args.ranks} is odd; the meshes have a side of 2")
    launches = []
    for part in jobs(args.ranks, args.tiny):
        launches += [(job, "bare") for job in part if job.truth]
        launches += [(job, how) for how in captures(args.capture) for job in part]
    return Harness(args).run(launches)


if __name__ == "__main__":
    sys.exit(main())

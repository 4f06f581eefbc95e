"""Two ranks, other models than the GPT, each cause in turn: how often rank and cause are named, and which other ranks.

    python benchmarks/cases.py --out OUT                              2 GPUs, under eight minutes
    python benchmarks/cases.py --out OUT --backend gloo --tiny        on a CPU, to try it out: its causes are other ones
    python benchmarks/cases.py --out OUT --only encoder_neighbour     one job

The columns are those of eight.py. A bare run has the first half of its steps without and the second with the fault.
"""

from __future__ import annotations

import sys

from harness import Harness, arguments, captures
from jobs import Job

MODELS = {
    "cnn": ("--model cnn --width 256 --depth 4 --extent 64 --batch 128", "--model cnn --width 16 --extent 32"),
    "encoder": (
        "--model encoder --parallel fsdp2 --width 768 --depth 4 --extent 512 --batch 64",
        "--model encoder --parallel fsdp2",
    ),
    "sentences": (
        "--model encoder --width 576 --depth 5 --extent 384 --batch 64",
        "--model encoder --width 48 --depth 5 --extent 80",
    ),
    "clicks": (
        "--model recommender --width 64 --depth 4 --extent 100000 --batch 8192",
        "--model recommender --width 16 --extent 1000",
    ),
}
"""Name -> flags on a GPU, flags with --tiny. ``encoder`` is FSDP2, the others DDP."""
FAULTS: list[tuple[str, str, dict[int, str]]] = [
    ("cnn", "input_stall@0", {0: "input_stall"}),
    ("encoder", "extra_compute@0", {0: "extra_compute"}),
    ("cnn", "neighbour@1", {1: "slow_compute"}),
    ("encoder", "input_stall@0,extra_compute@1", {0: "input_stall", 1: "extra_compute"}),
    ("encoder", "uneven_work@1", {1: "uneven_work"}),
    ("encoder", "host_pause@1", {1: "host_pause"}),
    ("sentences", "host_sync@0", {0: "host_sync"}),
    ("encoder", "allocator@1", {1: "allocator"}),
    ("clicks", "h2d_copy@0", {0: "h2d_copy"}),
    ("encoder", "neighbour@0", {0: "slow_compute"}),
    ("sentences", "recompile@1", {1: "recompile"}),
    ("clicks", "input_stall@1", {1: "input_stall"}),
    ("cnn", "extra_compute@1", {1: "extra_compute"}),
    ("sentences", "host_pause@0", {0: "host_pause"}),
    ("sentences", "uneven_work@0", {0: "uneven_work"}),
]
"""Model, planted fault, and truth (rank -> cause)."""


def jobs(tiny: bool) -> list[Job]:
    words = {name: ("zoo.py", "--seed", "3", *flags[tiny].split()) for name, flags in MODELS.items()}
    found = [Job(f"{name}_healthy", words[name]) for name in MODELS]
    micro = (*words["cnn"], "--micro", "4")
    found.append(Job("cnn_redundant_sync", micro, "redundant_sync", job_wide="redundant_sync"))
    for model, fault, truth in FAULTS:
        name = "_".join((model, *fault.replace("@", "_").split(",")))
        found.append(Job(name, words[model], fault, truth))
    return found


def main() -> int:
    args = arguments(__doc__, ranks=2, capture="inline", budget_s=470).parse_args()
    launches = []
    for job in jobs(args.tiny):
        launches += [(job, "bare")] if job.fault != "none" else []
        launches += [(job, how) for how in captures(args.capture)]
    return Harness(args).run(launches)


if __name__ == "__main__":
    sys.exit(main())

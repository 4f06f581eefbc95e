"""Words for people: what a cause is called, and what to do about it. Those of a cause come from its own file."""

from __future__ import annotations

from rankscope.causes.table import CAUSES

__all__ = ["ADVICE", "NOUN", "PHRASE", "SCENARIO", "amount", "hours", "parts"]

PHRASE = {cause.name: cause.phrase for cause in CAUSES}
"""Why a rank is late, as the end of a sentence."""

NOUN = {cause.name: cause.noun for cause in CAUSES}
"""The same as a noun: the end of a title, or what milliseconds are spent on."""

SCENARIO = {
    "ideal_network": "an ideal network",
    "hidden_transfers": "transfers wholly hidden",
    "even_compute": "compute shared out evenly",
    "no_host_overhead": "no host overhead",
}
"""What a replay assumes, after "the step would gain from"."""

ADVICE: dict[str, list[str]] = {cause.name: list(cause.advice) for cause in CAUSES} | {
    "comm_exposed": [
        "Let communication start earlier: smaller DDP buckets (bucket_cap_mb), fully_shard on each block.",
        "Move less: bf16 gradients, larger batches per step.",
    ],
    "redundant_sync": [
        "Call all but the last backward of a step under no_sync() (DDP) or set_requires_gradient_sync(False) (FSDP2).",
    ],
    "host_bound": [
        "The devices wait for Python: torch.compile, CUDA graphs, larger batches, or fewer and larger operators.",
    ],
    "out_of_memory": [
        "Hold less at a time: activation checkpointing, smaller micro-batches, sharding (fully_shard).",
        "Look for tensors kept over steps: losses that are summed up without .item(), lists of outputs.",
    ],
    "fragmentation": [
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, so that what is free can be joined.",
        "Keep shapes alike: each new size of a batch leaves pieces behind.",
    ],
    "gpu_throttled": [
        "Heat: look at the fans, the air flow and the rack (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER).",
        "Power: look at the power limit (nvidia-smi -pl) and the supply of that node; or move the rank to another GPU.",
    ],
    "ecc_errors": [
        "Have the GPU reset and checked (nvidia-smi -q -d ECC,ROW_REMAPPER): such errors end jobs, more may follow.",
    ],
    "pcie_degraded": [
        "Reseat or check the GPU and its riser; nvidia-smi -q shows the link beside what it could be.",
    ],
    "cpu_throttled": [
        "Raise the CPU limit of the container or pod, or leave it out.",
        "Or use fewer threads: DataLoader workers and OMP_NUM_THREADS of all ranks together should fit the quota.",
    ],
    "pipeline_wait": [
        "Use more micro-batches per step or an interleaved schedule, and balance the stages' time.",
    ],
}
"""What to do first, by kind of finding."""


def amount(ms: float) -> str:
    """A duration a person reads at a glance."""
    if abs(ms) >= 10_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if abs(ms) >= 9.95 else f"{ms:.1f} ms"


def parts(explained: dict[str, float], *, most: int = 3) -> str:
    """What an excess consists of, largest first: ``waiting for input 60 ms, compiling 2.0 ms``."""
    named = [f"{NOUN.get(c, c)} {amount(ms)}" for c, ms in list(explained.items())[:most] if ms >= 0.05]
    return ", ".join(named) or "nothing"


def hours(cost_ms: float, ranks: int) -> str:
    """Device time lost, in words: ms a step are seconds in 1,000 steps, on each rank."""
    return f"{cost_ms * ranks / 3600.0:.2g} GPU-hours per 1,000 steps on {ranks} ranks"

"""Words for people: what a cause is called, and what to do about it."""

from __future__ import annotations

__all__ = ["ADVICE", "NOUN", "PHRASE", "SCENARIO", "amount", "hours", "parts"]

PHRASE = {
    "input_stall": "it waits for input",
    "extra_compute": "it runs work the other ranks do not",
    "slow_compute": "the same work takes longer there",
    "uneven_work": "it has more data to work on than the other ranks",
    "host_sync": "its code waits for the device again and again",
    "host_pause": "its Python stands still, doing nothing the profiler sees",
    "h2d_copy": "its copies to the device block",
    "allocator": "it allocates and frees device memory in the step",
    "recompile": "it compiles during training",
    "launch_bound": "its host is slower at launching the same work",
    "unexplained": "no single cause explains most of it",
}
"""Why a rank is late, as the end of a sentence."""

NOUN = {
    "input_stall": "waiting for input",
    "extra_compute": "work the others do not run",
    "slow_compute": "the same work taking longer",
    "uneven_work": "more data to work on",
    "host_sync": "waiting for the device",
    "host_pause": "Python standing still",
    "h2d_copy": "copies to the device",
    "allocator": "allocating and freeing memory",
    "recompile": "compiling",
    "launch_bound": "slower launching",
    "unexplained": "no single cause",
}
"""The same as a noun: the end of a title, or what milliseconds are spent on."""

SCENARIO = {
    "ideal_network": "an ideal network",
    "hidden_transfers": "transfers wholly hidden",
    "even_compute": "compute shared out evenly",
    "no_host_overhead": "no host overhead",
}
"""What a replay assumes, after "the step would gain from"."""

ADVICE = {
    "input_stall": [
        "Raise num_workers and prefetch_factor of the DataLoader, with persistent_workers=True.",
        "Look at this rank's shard, disk and decoding: the other ranks get their batches in time.",
    ],
    "extra_compute": [
        "Find the operators only this rank runs (evaluation, logging, a branch on rank); move them out of the step.",
    ],
    "slow_compute": [
        "Check this device for throttling, ECC errors or another process on it (nvidia-smi -q -d CLOCK,PERFORMANCE).",
        "Move the rank to another device: a slowness that stays behind is the device's.",
        "On a CPU, record shapes (-S capture=shapes): without them a rank with more data looks the same.",
    ],
    "uneven_work": [
        "Even out the batches: bucket by length, pack sequences, or use a sampler that balances tokens per rank.",
    ],
    "host_sync": [
        "Remove .item(), .cpu(), print(tensor) and torch.cuda.synchronize() from the step; log every N steps instead.",
        "torch.cuda.set_sync_debug_mode('warn') names the lines.",
    ],
    "host_pause": [
        (
            "Look for garbage collection (gc.freeze(), gc.disable() with a collect between steps), locks, files, "
            "writes and sleeps in the step."
        ),
        "Record again with stacks (with_stack) to see the Python line.",
    ],
    "h2d_copy": [
        "Use pin_memory=True in the DataLoader and .to(device, non_blocking=True).",
        "Copy less: send small types and build the rest on the device.",
    ],
    "allocator": [
        "Remove torch.cuda.empty_cache() from the step.",
        "If memory is short, try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True instead.",
    ],
    "recompile": [
        "Keep shapes fixed (padding, bucketing) or mark them with torch._dynamo.mark_dynamic.",
        "TORCH_LOGS=recompiles says why it compiles.",
    ],
    "launch_bound": [
        "Launch less: torch.compile, CUDA graphs (mode='reduce-overhead'), fused or foreach optimizers.",
    ],
    "unexplained": [
        "Record again with stacks (with_stack) and look at the segment in the merged timeline.",
    ],
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

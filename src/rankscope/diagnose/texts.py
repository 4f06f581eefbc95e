"""Words for people: what a cause is called, and what to do about it."""

from __future__ import annotations

__all__ = ["ADVICE", "PHRASE", "amount"]

PHRASE = {
    "input_stall": "it waits for input",
    "extra_compute": "it runs work the other ranks do not",
    "slow_compute": "the same work takes longer there",
    "uneven_work": "it has more data to work on than the other ranks",
    "host_sync": "its code waits for the device again and again",
    "host_pause": "its Python stops for a while without doing anything the profiler sees",
    "h2d_copy": "its copies to the device block",
    "allocator": "it allocates and frees device memory in the step",
    "recompile": "it compiles during training",
    "launch_bound": "its host is slower at launching the same work",
    "unexplained": "no single cause explains most of it",
}
"""Why a rank is late, as the end of a sentence."""

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

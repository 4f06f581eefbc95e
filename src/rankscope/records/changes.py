"""Changes that a job could make: objects in the trace, and what each would gain by replay, in ms per step."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "BesideCalls",
    "Chain",
    "Changes",
    "DoubledBatch",
    "ExpertParallel",
    "Gain",
    "PlainAttention",
    "SlowLink",
    "SmallCalls",
    "TensorParallel",
    "UnalignedProduct",
    "UnevenAttention",
]


@dataclass(kw_only=True)
class Gain:
    """What a step would gain."""

    low_ms: float = 0.0
    high_ms: float = 0.0


@dataclass(kw_only=True)
class UnalignedProduct(Gain):
    """The matrix product that loses most because a size is no multiple of 8; the gain is that of all such products."""

    operator: str
    sizes: str
    """Of its factors: ``[8192, 768] x [768, 50257]``."""
    pad: dict[int, int]
    """Size -> the next size that is aligned."""
    tflops: float
    aligned_tflops: float
    """Of aligned products of the trace with no more operations and no more operations per byte."""


@dataclass(kw_only=True)
class PlainAttention(Gain):
    """Attention that writes its scores to memory: softmax, and products with them."""

    kernels: float
    """Per step and rank."""
    ms: float
    """Their device time per step."""
    fallback: bool
    """It is what ``scaled_dot_product_attention`` itself runs if no fused kernel is possible."""


@dataclass(kw_only=True)
class BesideCalls(Gain):
    """Kernels that take longer while NCCL's kernels run."""

    ratio: float
    """How many times as long, mean weighted by time."""
    error: float
    """Half the width of its 95 % interval."""
    operator: str
    """The operator that loses most; empty if unknown."""


@dataclass(kw_only=True)
class SlowLink(Gain):
    """Long calls of a group within a host that stay below what the link between its devices can give."""

    ranks: list[int]
    kind: str
    link: str
    link_gb_s: float
    best_gb_s: float
    """Of the fastest tenth of these calls; a call that runs beside compute does not count."""
    calls: int


@dataclass(kw_only=True)
class SmallCalls(Gain):
    """Calls of a group whose time hardly depends on their size, and which could be one."""

    ranks: list[int]
    kind: str
    calls: float
    """Per step."""
    fixed_us: float
    """Time of a call that does not depend on its size."""
    mean_us: float
    megabytes: float
    """Mean size."""


@dataclass(kw_only=True)
class DoubledBatch(Gain):
    """Twice the batch of each rank, in a data parallel job. The gain is per step of the recorded batch."""

    twice_ms: float
    """Length of the step with twice the batch, if hosts take no longer: the best case."""


@dataclass(kw_only=True)
class TensorParallel(Gain):
    """Calls of tensor parallel groups (by their names). The gain is that of none of their transfers."""

    size: int
    ranks: list[int]
    """Of the first of the groups."""
    hosts: int
    """Number of hosts over which one of them extends; 0 if unknown."""
    halved_ms: float
    """Gain if these groups had half their size, and data parallel groups were twice as many."""
    others_ms: float
    """Gain of none of the transfers of all other groups."""
    link: str = ""
    """Link between devices of one host; empty if unknown."""
    within: Gain | None = None
    """Gain if transfers took the rate of that link: at 40 % of it, and at all of it. None if the rate is unknown."""


@dataclass(kw_only=True)
class ExpertParallel(Gain):
    """All-to-alls of tokens between experts. The gain is that of none of their transfers."""

    others_ms: float
    """Gain of none of the transfers of all other calls."""
    balanced_ms: float
    """Gain of equal device work on all ranks between calls."""


@dataclass(kw_only=True)
class Chain:
    """Element-wise kernels that follow each other on a stream."""

    operators: list[str]
    """Those that launch them, in order."""
    count: float
    """Number of such chains per step."""
    ms: float
    """Their device time per step."""


@dataclass(kw_only=True)
class UnevenAttention(Gain):
    """A context parallel group (by its name) whose ranks compute attention for unequally long."""

    group: list[int]
    late: list[int]
    """Its ranks that compute more than the mean."""
    longest_ms: float
    """Per step, of the rank with most of it."""
    mean_ms: float


@dataclass(kw_only=True)
class Changes:
    """None where a trace does not show the object of a change."""

    product: UnalignedProduct | None = None
    attention: PlainAttention | None = None
    beside: BesideCalls | None = None
    link: SlowLink | None = None
    small_calls: list[SmallCalls] = field(default_factory=list)
    batch: DoubledBatch | None = None
    chain: Chain | None = None
    tensor: TensorParallel | None = None
    experts: ExpertParallel | None = None
    context: UnevenAttention | None = None

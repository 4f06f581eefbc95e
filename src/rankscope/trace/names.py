"""What kind of work an event is, by its name. Communication is known by the rows of ``trace.libraries``.

A kernel that no row knows is compute.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from rankscope.trace.columns import Category
from rankscope.trace.libraries import LIBRARIES, NEVER

__all__ = [
    "DEVICE_WORK",
    "Kind",
    "classify",
    "family",
    "function",
    "is_communication",
    "is_fused",
    "is_input",
    "is_known_compute",
    "is_wait",
]


class Kind(IntEnum):
    """What an event does, for the accounting of a rank's time."""

    OTHER = 0
    """Host events that are neither: calls, annotations, waits."""
    COMPUTE = 1
    COMMUNICATION = 2
    COPY = 3
    """Copies and memsets between memories, not between ranks."""
    WAIT = 4
    """A host operator that only waits for others."""
    FUSED = 5
    """A kernel that computes and communicates at once. A trace does not show how much of it is which."""


_REMEMBERED = 1 << 14
"""Names whose meaning is remembered: the ranks of a job share theirs, so that each is looked at once."""

DEVICE_WORK = (Kind.COMPUTE, Kind.COMMUNICATION, Kind.COPY, Kind.FUSED)
"""What a device does."""

_COMMUNICATION = re.compile("|".join(f"(?:{row.kernels})" for row in LIBRARIES if row.kernels), re.IGNORECASE)
_FUSED = re.compile("|".join(f"(?:{row.fused})" for row in LIBRARIES if row.fused), re.IGNORECASE)
_PREFIX = re.compile(f"(?:{'|'.join(row.prefix for row in LIBRARIES if row.prefix)}):", re.IGNORECASE)
_NEVER = re.compile(NEVER, re.IGNORECASE)

_UNNAMED = re.compile(r"\(anonymous namespace\)::|<unnamed>::|`anonymous namespace'::")
_QUALIFIERS = re.compile(r"^(?:static |void |typeinfo name for |__global__ )+")
_SPECIALISED = re.compile(r"_\d+d[ec]?(?:\d+(?:d[ec]?)?)+$")
"""What Triton appends for the arguments that it compiled a kernel for: ``_0d1d2de3``."""
_MANGLED = re.compile(r"_ZN?K?(?=\d)")

_COPY = re.compile(
    r"^(Memcpy|Memset)\b | ^Copy(DeviceTo|HostTo|Device) | ^FillBuffer\b | ^__amd_rocclr_(copy|fill)",
    re.VERBOSE | re.IGNORECASE,
)

_WAIT = re.compile(
    r"wait_tensor$ | ^c10d::(barrier|monitored_barrier_)$ | ^gloo:barrier | Work::wait",
    re.VERBOSE,
)

# Host operators that hand a call to a backend, the call itself being another event, or that run hooks (and with them
# whatever waiting those do) around the operator proper.
_PLUMBING = re.compile(
    r"""^record_param_comms$ | ^c10d:: | ^_c10d_functional:: | ^symm_mem:: | ^autograd::engine::evaluate_function
    | ^(?!Compiled)\w+Backward$   # autograd functions written in Python: FSDP reduces and waits inside of one
    """,
    re.VERBOSE,
)

_INPUT = re.compile(r"^enumerate\(DataLoader\)|DataLoader.*__next__|^\[pl\].*(train|fetch).*dataloader", re.IGNORECASE)

# Families of compute kernels, first match wins. Only for reading; no analysis depends on them.
_FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("attention", r"flash|fmha|attention|sdpa"),
        ("matmul", r"gemm|cutlass|cublas|^Cijk_|nvjet|::mm$|addmm|matmul|::bmm$|splitK"),
        ("convolution", r"conv|cudnn|implicit_|winograd|miopen"),
        ("normalisation", r"layer_?norm|batch_?norm|rms_?norm"),
        ("optimizer", r"adam|multi_tensor_apply|foreach|sgd"),
        ("embedding", r"embedding|index_select|gather_kernel|indexing_backward"),
        ("softmax and loss", r"softmax|nll_loss|cross_entropy"),
        ("triton", r"^triton_|_triton"),
        ("reduction", r"reduce_kernel|::sum$|::mean$"),
        ("elementwise", r"elementwise|::add|::mul|::copy_|unrolled|FillFunctor"),
    )
)


def function(name: str) -> str:
    """Qualified function of a kernel: ``vllm::cross_device_reduce_1stage`` of ``void vllm::cross_device_reduce_1stage<
    float, 2>(vllm::RankData*)``, mangled or not."""
    if mangled := _MANGLED.match(name):
        return _demangled(name[mangled.end() :])
    plain = _QUALIFIERS.sub("", _UNNAMED.sub("", name))
    return _SPECIALISED.sub("", re.split(r"[<(\s]", plain, maxsplit=1)[0].removesuffix(".kd"))


def _demangled(text: str) -> str:
    """Names of an Itanium-mangled function, up to its template arguments."""
    parts = []
    while number := re.match(r"\d{1,4}", text):
        begin = number.end()
        length = int(number.group())
        if begin + length > len(text):
            break
        parts.append(text[begin : begin + length])
        text = text[begin + length :]
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N"))


def is_communication(name: str) -> bool:
    """Say whether a kernel or operator of this name moves data between ranks, or waits for another rank to."""
    if _PREFIX.match(name):
        return True
    plain = function(name)
    return _NEVER.search(plain) is None and _COMMUNICATION.search(plain) is not None


def is_fused(name: str) -> bool:
    """Say whether a kernel of this name computes and communicates at once."""
    return _FUSED.search(name) is not None


@lru_cache(_REMEMBERED)
def is_known_compute(name: str) -> bool:
    """Say whether a kernel of this name computes, whatever a record of communication says that launched it."""
    if is_communication(name):
        return False
    return is_fused(name) or _NEVER.search(function(name)) is not None or any(p.search(name) for _, p in _FAMILIES)


def is_wait(name: str) -> bool:
    """Say whether a host operator of this name only waits for communication."""
    return _WAIT.search(name) is not None


@lru_cache(_REMEMBERED)
def is_input(name: str) -> bool:
    """Say whether a host annotation of this name covers the fetching of a batch."""
    return _INPUT.search(name) is not None


@lru_cache(_REMEMBERED)
def classify(name: str, category: int) -> Kind:
    """Kind of an event by its name and :class:`~rankscope.trace.columns.Category`.

    GPU events are compute unless they communicate, copy, or compute and communicate at once. CPU operators are compute
    unless they communicate or wait. Everything else (calls, annotations, Python frames) is ``OTHER``.
    """
    if category in (Category.GPU_MEMCPY, Category.GPU_MEMSET):
        return Kind.COPY
    if category == Category.KERNEL:
        if is_fused(name):
            return Kind.FUSED
        if is_communication(name):
            return Kind.COMMUNICATION
        return Kind.COPY if _COPY.search(name) else Kind.COMPUTE
    if category == Category.CPU_OP:
        if is_wait(name):
            return Kind.WAIT
        if _PLUMBING.search(name):
            return Kind.OTHER
        return Kind.COMMUNICATION if is_communication(name) else Kind.COMPUTE
    return Kind.OTHER


def family(name: str, kind: Kind) -> str:
    """Family of a kernel or operator for tables: ``matmul``, ``attention`` ..., else the kind's own name."""
    if kind is not Kind.COMPUTE:
        return kind.name.lower()
    for label, pattern in _FAMILIES:
        if pattern.search(name):
            return label
    return "other compute"

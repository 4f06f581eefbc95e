"""Kind of work of an event, by its name. Communication is recognised by the rows of ``trace.libraries``.

A kernel that matches no row is compute.
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
    """Kind of an event, for the accounting of a rank's time."""

    OTHER = 0
    """Host events that are neither of these: calls, annotations, waits."""
    COMPUTE = 1
    COMMUNICATION = 2
    COPY = 3
    """Copies and memsets between memories, not between ranks."""
    WAIT = 4
    """A host operator that only waits for others."""
    FUSED = 5
    """A kernel that computes and communicates at once. A trace does not show how much of it is which."""


_REMEMBERED = 1 << 14
"""Number of names whose classification is cached: the ranks of a job share their names, so each is classified once."""

DEVICE_WORK = (Kind.COMPUTE, Kind.COMMUNICATION, Kind.COPY, Kind.FUSED)
"""Kinds of work on a device."""

_COMMUNICATION = re.compile("|".join(f"(?:{row.kernels})" for row in LIBRARIES if row.kernels), re.IGNORECASE)
_FUSED = re.compile("|".join(f"(?:{row.fused})" for row in LIBRARIES if row.fused), re.IGNORECASE)
_PREFIX = re.compile(f"(?:{'|'.join(row.prefix for row in LIBRARIES if row.prefix)}):", re.IGNORECASE)
_NEVER = re.compile(NEVER, re.IGNORECASE)

_UNNAMED = re.compile(r"\(anonymous namespace\)::|<unnamed>::|`anonymous namespace'::")
_QUALIFIERS = re.compile(r"^(?:static |void |typeinfo name for |__global__ )+")
_SPECIALISED = re.compile(r"_\d+d[ec]?(?:\d+(?:d[ec]?)?)+$")
"""The suffix that Triton appends for the arguments that it compiled a kernel for: ``_0d1d2de3``."""
_MANGLED = re.compile(r"_ZN?K?(?=\d)")

_COPY = re.compile(
    r"^(Memcpy|Memset)\b | ^Copy(DeviceTo|HostTo|Device) | ^FillBuffer\b | ^__amd_rocclr_(copy|fill)",
    re.VERBOSE | re.IGNORECASE,
)

_WAIT = re.compile(
    r"wait_tensor$ | ^c10d::(barrier|monitored_barrier_)$ | ^gloo:barrier | Work::wait",
    re.VERBOSE,
)

# Host operators that pass a call on to a backend, where the call itself is another event, or that run hooks (including
# any waiting in these) around the actual operator.
_PLUMBING = re.compile(
    r"""^record_param_comms$ | ^c10d:: | ^_c10d_functional:: | ^symm_mem:: | ^autograd::engine::evaluate_function
    | ^(?!Compiled)\w+Backward$   # autograd functions written in Python: FSDP reduces and waits inside of one
    """,
    re.VERBOSE,
)

_INPUT = re.compile(r"^enumerate\(DataLoader\)|DataLoader.*__next__|^\[pl\].*(train|fetch).*dataloader", re.IGNORECASE)

# Families of compute kernels, first match wins. For display only; no analysis depends on them.
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
    """Return the qualified function of a kernel: ``vllm::cross_device_reduce_1stage`` for ``void
    vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*)``, mangled or not."""
    if mangled := _MANGLED.match(name):
        return _demangled(name[mangled.end() :])
    plain = _QUALIFIERS.sub("", _UNNAMED.sub("", name))
    return _SPECIALISED.sub("", re.split(r"[<(\s]", plain, maxsplit=1)[0].removesuffix(".kd"))


def _demangled(text: str) -> str:
    """Return the names of an Itanium-mangled function, up to its template arguments."""
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
    """Return whether a kernel or operator of this name moves data between ranks, or waits for another rank."""
    if _PREFIX.match(name):
        return True
    plain = function(name)
    return _NEVER.search(plain) is None and _COMMUNICATION.search(plain) is not None


def is_fused(name: str) -> bool:
    """Return whether a kernel of this name computes and communicates at once."""
    return _FUSED.search(name) is not None


@lru_cache(_REMEMBERED)
def is_known_compute(name: str) -> bool:
    """Return whether a kernel of this name computes, even if a record of communication launched it."""
    if is_communication(name):
        return False
    return is_fused(name) or _NEVER.search(function(name)) is not None or any(p.search(name) for _, p in _FAMILIES)


def is_wait(name: str) -> bool:
    """Return whether a host operator of this name only waits for communication."""
    return _WAIT.search(name) is not None


@lru_cache(_REMEMBERED)
def is_input(name: str) -> bool:
    """Return whether a host annotation of this name covers the fetching of a batch."""
    return _INPUT.search(name) is not None


@lru_cache(_REMEMBERED)
def classify(name: str, category: int) -> Kind:
    """Return the kind of an event by its name and :class:`~rankscope.trace.columns.Category`.

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
    """Return the family of a kernel or operator for tables: ``matmul``, ``attention`` ..., else the name of the
    kind."""
    if kind is not Kind.COMPUTE:
        return kind.name.lower()
    for label, pattern in _FAMILIES:
        if pattern.search(name):
            return label
    return "other compute"

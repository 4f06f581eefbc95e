"""Classification of a name by the analysis, and words that are classified equally.

A token has to be classified as the same kind of work as the name it replaces, or the numbers of the copy would differ.
Every test that is applied to names is applied here, to the name and to its replacement.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any

from rankscope.analysis.hta.events import type_of
from rankscope.analysis.rank.losses import CALL_TESTS
from rankscope.causes.table import CAUSES
from rankscope.trace.columns import Category
from rankscope.trace.kineto.collectives import kind_of_name
from rankscope.trace.libraries import LIBRARIES
from rankscope.trace.names import Kind, classify, family, function, is_fused, is_input, is_known_compute

__all__ = ["alike", "meaning"]

_COUNTED = ("HtoD", "HostToDevice", "c10d::", "autograd::engine::evaluate", "ProfilerStep#", "Begin")


class _Asked:
    """Takes the place of a rank's host time, and collects the names that a cause queries."""

    def __init__(self) -> None:
        self.patterns: list[re.Pattern[str]] = []

    def events(self, names: re.Pattern[str]) -> None:
        self.patterns.append(names)

    calls = events

    def __getattr__(self, name: str) -> Any:
        return lambda: None


@functools.cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    asked: Any = _Asked()
    for cause in CAUSES:
        if cause.host_time is not None:
            cause.host_time(asked)
    return tuple(asked.patterns)


_ALIKE = {Category.CUDA_DRIVER: Category.CUDA_RUNTIME, Category.GPU_MEMSET: Category.GPU_MEMCPY}
_APART = (Category.KERNEL, Category.GPU_MEMCPY, Category.CPU_OP, Category.CUDA_RUNTIME)


@functools.lru_cache(1 << 16)
def meaning(name: str, category: int) -> tuple[Any, ...]:
    """Return the results of all tests that are applied to names of this :class:`Category`."""
    kind = classify(name, category)
    tests = (
        _patterns() if category not in (Category.CUDA_RUNTIME, Category.CUDA_DRIVER) else (*CALL_TESTS, *_patterns())
    )
    return (
        family(name, kind),
        kind,
        is_fused(name),
        is_known_compute(name),
        is_input(name),
        kind_of_name(name) if kind is Kind.COMMUNICATION else "",
        type_of(name),
        tuple(test.search(name) is not None for test in tests),
        tuple(part in name for part in _COUNTED),
    )


_BEFORE = (
    *("", "triton_", "autograd::engine::evaluate_function: ", "c10d::", "at::native::", "Memcpy ", "dma", "cub::"),
    *("enumerate(DataLoader)#", "flash_", "gemm_", "conv_", "layer_norm_", "adam_", "embedding_", "softmax_", "cudnn_"),
    *("cublas_", "cutlass::", "compile_id=", "HtoD_", "nccl:", "gloo:", "megamoe_", "Memset ", "DataLoader.__next__ "),
)
_AFTER = (
    *("", "Backward", " wait_tensor", "_reduce_kernel", "_elementwise", "Sync", "Synchronize", "_attention", "_matmul"),
    *("_conv", "_layer_norm", "_batch_norm", "_adam", "_embedding", "_softmax", "_reduce_scatter", "_allreduce"),
    *("_allgather", "_all_to_all", "_broadcast", "_sendrecv", "_reduce", "_triton_", "_gemm", "_rms_norm", "_sgd"),
)


def alike(name: str, token: str, category: int) -> str:
    """Return the token, with added words if these are needed for the analysis to classify it like the name.

    Only words of this file are added, never a part of the name.
    """
    category = _ALIKE.get(Category(category), category)
    exactly, nearly = _templates(category if category in _APART else int(Category.OTHER))
    wanted = meaning(name, category)
    # the family of a kernel is for display only; the rest affects numbers
    template = exactly.get(wanted) or nearly.get(wanted[1:]) or _SAMPLE
    return template.replace(_SAMPLE, token)


_SAMPLE = "own_000000000000"


@functools.cache
def _templates(category: int) -> tuple[dict[Any, str], dict[Any, str]]:
    """Return classification -> the first candidate that has it; and the same without the family."""
    exactly: dict[Any, str] = {}
    nearly: dict[Any, str] = {}
    for candidate in _candidates():
        means = meaning(candidate, category)
        exactly.setdefault(means, candidate)
        nearly.setdefault(means[1:], candidate)
    return exactly, nearly


def _candidates() -> Iterator[str]:
    yield _SAMPLE
    yield from (before + _SAMPLE for before in _BEFORE if before)
    yield from (_SAMPLE + after for after in _AFTER if after)
    yield from (f"{function(sample) or sample}<{_SAMPLE}>" for row in LIBRARIES for sample, _ in row.samples)
    yield from (before + _SAMPLE + after for before, after in itertools.product(_BEFORE, _AFTER) if before and after)

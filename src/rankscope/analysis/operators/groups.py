"""Kind of work of a kernel, by the operator that launched it and by its name: the rows of the efficiency table."""

from __future__ import annotations

import re

__all__ = [
    "ATTENTION",
    "COMPILED",
    "MATRIX",
    "MEMORY_BOUND",
    "OPTIMIZER",
    "PLAIN",
    "SHARDING",
    "group_of",
    "priced_group",
    "uses_tensor_cores",
]

MATRIX = "matrix products"
ATTENTION = "attention"
CONVOLUTION = "convolutions"
OPTIMIZER = "optimizer"
SHARDING = "copies for sharding"
COMPILED = "compiled (Triton)"
MEMORY_BOUND = "element-wise, norms and losses"
PLAIN = "products and attention in 32 bits"
"""Those without tensor cores: a group that is priced, and no row of the table."""

_ROWS: tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...] = (
    (COMPILED, re.compile(r"^triton_"), re.compile(r"^triton_")),
    (ATTENTION, re.compile(r"attention", re.I), re.compile(r"flash|fmha|attention", re.I)),
    (
        CONVOLUTION,
        re.compile(r"conv(olution|\dd)", re.I),
        re.compile(r"implicit_gemm|convolve|wgrad|dgrad|fprop", re.I),
    ),
    (
        MATRIX,
        re.compile(
            r"^aten::(add|b|badd|_scaled_|_grouped_|_int_)?mm$|^aten::(linear|matmul|addmv|mv|_addmm_activation)$"
        ),
        re.compile(r"gemm|nvjet|cutlass|cublas|^Cijk_|_mm_|splitK", re.I),
    ),
    (
        OPTIMIZER,
        re.compile(r"^aten::_fused_(adam|sgd|adagrad)|^aten::_foreach_|^Optimizer\."),
        re.compile(r"multi_tensor_apply|fused_adam|FusedAdam", re.I),
    ),
    (SHARDING, re.compile(r"split_with_sizes_copy|_chunk_cat|^fsdp::|^FSDP::"), re.compile(r"chunk_cat", re.I)),
)
"""Group, operators, kernels. The first row that matches the operator is used, else the first that matches the
kernel."""
_TENSOR_CORES = re.compile(
    r"nvjet|wgmma|tensorop|xmma|s\d+816|h\d+816|i\d+816|16816|1688|mfma|^Cijk_|hmma|bf16.*gemm", re.I
)
_PLAIN = re.compile(r"sgemm|simt|gemmSN|_f32f32_f32f32_f32", re.I)
_PLAIN_ATTENTION = re.compile(r"_f32_|_f32\b|float32", re.I)


def group_of(operator: str, kernel: str) -> str:
    """Return the group of one kernel. One that no row matches counts as element-wise, as most kernels are."""
    for group, operators, _ in _ROWS:
        if operators.search(operator):
            return group
    return next((group for group, _, kernels in _ROWS if kernels.search(kernel)), MEMORY_BOUND)


def priced_group(operator: str, kernel: str) -> str:
    """Return the group as which the kernel's time is priced: the same but for products in 32 bits."""
    group = group_of(operator, kernel)
    plain = {MATRIX: _PLAIN, ATTENTION: _PLAIN_ATTENTION}.get(group)
    return PLAIN if plain is not None and plain.search(kernel) else group


def uses_tensor_cores(kernel: str) -> bool | None:
    """Return whether a matrix product's kernel uses tensor (matrix) cores; None if its name does not show it."""
    if _PLAIN.search(kernel):  # tested first: xmma and cutlass have kernels of both sorts
        return False
    return True if _TENSOR_CORES.search(kernel) else None

"""Operators and rates of kernels, and the work of convolutions; expected numbers are calculated by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.analysis.operators.bytes import bytes_of_elementwise, bytes_of_product
from rankscope.analysis.operators.convolutions import BACKWARD, Convolutions
from rankscope.analysis.operators.origins import origins
from rankscope.analysis.tables.kernels import kernel_rows
from rankscope.report.sections.devices.kernels import _shapes

from .test_operators import event, products, view

INTO, WEIGHT, OUT = [8, 16, 10, 10], [32, 16, 3, 3], [8, 32, 10, 10]
EACH = 2 * (8 * 32 * 10 * 10) * (16 * 3 * 3)
"""Operations of the forward call: 7,372,800."""
CONV = "aten::cudnn_convolution"


def dims(*sizes: list[int]) -> str:
    return json.dumps([*sizes, [], []])


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        (CONV, dims(INTO, WEIGHT), EACH),
        (BACKWARD, dims(OUT, INTO, WEIGHT), 2 * EACH),
        (CONV, dims(INTO, [64, 16, 3, 3]), None),  # no backward shows its output
        (BACKWARD, dims([8, 32, 5, 5], [8, 3, 10, 10], [32, 3, 2, 2]), 2 * (8 * 32 * 5 * 5) * (3 * 2 * 2)),  # pictures
        # transposed: each of 8 x 16 x 10 x 10 inputs meets 4 x 2 x 2 weights
        (BACKWARD, dims([8, 4, 20, 20], INTO, [16, 4, 2, 2]), 2 * 2 * (8 * 16 * 10 * 10) * (4 * 2 * 2)),
        # of two groups: a weight has 8 of the 16 channels
        (BACKWARD, dims(OUT, INTO, [32, 8, 3, 3]), 2 * 2 * (8 * 32 * 10 * 10) * (8 * 3 * 3)),
        ("aten::add", dims(INTO, WEIGHT), None),
        (BACKWARD, dims(OUT, INTO), None),
        (CONV, "no json", None),
    ],
)
def test_operations_of_a_convolution(operator: str, shapes: str, expected: int | None) -> None:
    assert Convolutions([(BACKWARD, dims(OUT, INTO, WEIGHT))]).flop(operator, shapes) == expected


def test_an_output_that_is_not_certain_is_not_taken() -> None:
    both = Convolutions([(BACKWARD, dims(out, INTO, WEIGHT)) for out in (OUT, [8, 32, 5, 5])])
    assert both.flop(CONV, dims(INTO, WEIGHT)) is None


def test_where_a_kernel_comes_from(tmp_path: Path) -> None:
    """Five products of 2e9 operations, 100 us each: 20 TFLOP/s. The kernel that two operators launch is of the one with
    more time, and of a call with two kernels no rate is known."""
    rows = products(5, at=10.0, number=1)
    for number, operator, length in ((50, "aten::add", 30.0), (51, "aten::mul", 20.0)):
        at = 1000.0 + number
        rows += [
            event(operator, "cpu_op", at, 0.9, **{"External id": number, "Input Dims": [[4], [4]]}),
            event("cudaLaunchKernel", "cuda_runtime", at, 0.5, correlation=number, **{"External id": number}),
            event("pointwise", "kernel", 9000 + 50 * number, length, 7, stream=7, correlation=number,
                  **{"External id": number}),
        ]  # fmt: skip
    twice = products(1, at=2000.0, number=60, kernel="split")
    again = event("split", "kernel", 15_000.0, 10.0, 7, stream=7, correlation=61, **{"External id": 60})
    launch = event("cudaLaunchKernel", "cuda_runtime", 2008.0, 1.0, correlation=61, **{"External id": 60})
    twice[-1]["ts"] = 14_000.0
    found = origins([view(tmp_path, [*rows, *twice, launch, again])])
    product = found["nvjet_tst_128x128"]
    assert (product.operator, json.loads(product.shapes or "")) == ("aten::mm", [[1000, 2000], [2000, 500]])
    assert product.tflops == pytest.approx(20.0)
    # in bf16, 2 bytes each: 2e6 and 1e6 elements are read and 0.5e6 written in 100 us
    assert product.gb_s == pytest.approx(2 * 3.5e6 / 100e-6 / 1e9)
    assert found["split"].gb_s is None
    assert (found["pointwise"].operator, found["pointwise"].tflops) == ("aten::add", None)
    assert (found["split"].operator, found["split"].tflops) == ("aten::mm", None)


def test_the_table_has_them(tmp_path: Path) -> None:
    (row,) = kernel_rows([view(tmp_path, products(5, at=10.0, number=1))])
    assert (row.operator, row.tflops, row.ms_per_step) == ("aten::mm", pytest.approx(20.0), pytest.approx(0.5))


def test_the_module_that_launches_most_of_a_kernel(tmp_path: Path) -> None:
    """Of six products of 100 us two are launched in a linear layer, one in another layer, and three outside of all
    modules: most of those in modules belong to the linear layer."""
    calls = [
        event("nn.Module: GPT_0", "python_function", 0.0, 65.0),
        event("nn.Module: Linear_3", "python_function", 5.0, 40.0),
        event("nn.Module: Head_0", "python_function", 46.0, 15.0),
    ]
    stacks = view(tmp_path, [*calls, *products(6, at=10.0, number=1)])
    assert origins([stacks])["nvjet_tst_128x128"].module == "GPT/Linear"
    (row,) = kernel_rows([stacks])
    assert row.module == "GPT/Linear"
    (row,) = kernel_rows([view(tmp_path, products(6, at=10.0, number=1), rank=1)])
    assert row.module is None


@pytest.mark.parametrize(
    ("kernel", "each"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", 2),
        ("nvjet_hsh_128x128", 2),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn", 4),
        ("ampere_bf16_s16816gemm_bf16_128x64", 2),
        ("ampere_sgemm_128x64_tn", 4),
        ("mystery", 0),
    ],
)
def test_bytes_of_a_product_by_the_type_in_the_kernel_s_name(kernel: str, each: int) -> None:
    """2 x 3 times 3 x 5: 6 and 15 elements are read, 10 written."""
    assert (bytes_of_product("aten::mm", kernel, "[[2, 3], [3, 5]]") or 0) == each * 31
    assert bytes_of_product("aten::add", kernel, "[[2, 3], [3, 5]]") is None


@pytest.mark.parametrize(
    ("operator", "kernel", "shapes", "expected"),
    [
        ("aten::gelu", "vectorized_elementwise_kernel<4, float>", "[[2, 4], []]", 4 * (8 + 8)),
        ("aten::sum", "reduce_kernel<128, 4, ReduceOp<float>>", "[[2, 4], []]", 4 * 8),  # it writes few
        ("aten::copy_", "bfloat16_copy_kernel", "[[2, 4], [2, 4], []]", 2 * (8 + 8)),  # the first is the output
        ("aten::fill_", "FillFunctor<float>", "[[2, 4], []]", 4 * 8),
        ("aten::nll_loss_forward", "nll_loss_forward<float>", "[[16, 16], [16]]", None),  # it reads 16 of 256
        ("aten::copy_", "unrolled_elementwise_kernel<float>", "[[2, 4], [2, 4]]", None),  # of two types
        ("aten::add", "elementwise_kernel<4>", "[[2, 4]]", None),
        ("aten::add", "elementwise_kernel<float>", "dims-7", None),
    ],
)
def test_bytes_of_an_element_wise_kernel(operator: str, kernel: str, shapes: str, expected: float | None) -> None:
    assert bytes_of_elementwise(operator, kernel, shapes) == expected


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("[[8, 32], [32, 16], []]", "8x32, 32x16"),
        ("[[[16, 4], [2, 4]], []]", "16x4, 2x4"),  # a list of tensors
        ("dims-7", ""),  # of a redacted run
        (None, ""),
    ],
)
def test_shapes_as_people_write_them(recorded: str | None, shown: str) -> None:
    assert _shapes(recorded) == shown

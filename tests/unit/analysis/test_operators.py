"""Operators and Python lines by name, and utilisation of devices; expected numbers are calculated by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.analysis.operators.compare import operator_excess
from rankscope.analysis.operators.device_peaks import peak_of
from rankscope.analysis.operators.efficiency import efficiency
from rankscope.analysis.operators.flops import flop
from rankscope.analysis.operators.groups import group_of, priced_group, uses_tensor_cores
from rankscope.analysis.operators.python_lines import readable, user_frames
from rankscope.analysis.operators.work import operator_work, self_time
from rankscope.analysis.rank.self_time import self_time as self_time_of
from rankscope.analysis.rank.view import RankView, make_view
from rankscope.trace.kineto.build import read_trace

MM = "[[1000, 2000], [2000, 500]]"
"""2 x 1000 x 2000 x 500 = 2e9 operations."""


def event(name: str, cat: str, start: float, length: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "pid": 1, "tid": tid, "ts": start, "dur": length, "args": args}


def products(
    count: int, *, at: float, number: int, kernel: str = "nvjet_tst_128x128", each: float = 100.0
) -> list[Any]:
    """Calls of aten::mm, 20 us apart, with a kernel of ``each`` us; ``number`` begins their ids."""
    found = []
    for i in range(count):
        start, key = at + 20.0 * i, number + i
        found += [
            event("aten::mm", "cpu_op", start, 10.0, **{"External id": key, "Input Dims": json.loads(MM)}),
            event("cudaLaunchKernel", "cuda_runtime", start + 2, 5.0, correlation=key, **{"External id": key}),
            event(kernel, "kernel", 5000.0 + each * i, each, 7, stream=7, correlation=key, **{"External id": key}),
        ]
    return found


def view(tmp_path: Path, events: list[Any], rank: int = 0, device: str = "NVIDIA H100 80GB HBM3") -> RankView:
    step = event("ProfilerStep#1", "user_annotation", 0.0, 20_000.0)
    path = tmp_path / f"rank_{rank}.json"
    about = {"deviceProperties": [{"id": 0, "name": device}], "baseTimeNanoseconds": 0}
    path.write_text(json.dumps({**about, "traceEvents": [step, *events]}))
    return make_view(read_trace(path), rank)


PYTHON = [
    event("/job/train.py(10): main", "python_function", 0.0, 10_000.0),
    event("torch/nn/modules/module.py(1751): _wrapped_call_impl", "python_function", 100.0, 1000.0),
    event("model/net.py(40): forward", "python_function", 200.0, 600.0),
    event("torch/functional.py(7): einsum", "python_function", 300.0, 400.0),
    event("contextlib.py(141): __exit__", "python_function", 2000.0, 500.0),
    event("/usr/lib/python3.11/site-packages/extra/loader.py(3): get", "python_function", 3000.0, 500.0),
]
"""main from 0 to 10,000 us, in it forward of the user's own module from 200 to 800; the others belong to libraries."""


def test_the_deepest_frame_of_the_users_own_code_is_found(tmp_path: Path) -> None:
    frames = user_frames(view(tmp_path, [*PYTHON, event("aten::mm", "cpu_op", 350.0, 10.0)]))
    assert frames.at(np.array([150, 350, 750, 900, 3100, 12_000]) * 1000) == [
        "main() (job/train.py:10)",
        "forward() (model/net.py:40)",
        "forward() (model/net.py:40)",
        "main() (job/train.py:10)",
        "main() (job/train.py:10)",
        "",
    ]
    spans = (np.array([500, 2000]) * 1000, np.array([1000, 2100]) * 1000)  # 300 us of forward, 200 + 100 of main
    assert frames.inside(spans) == {"forward() (model/net.py:40)": 300_000.0, "main() (job/train.py:10)": 300_000.0}


def test_without_stacks_there_is_no_line(tmp_path: Path) -> None:
    frames = user_frames(view(tmp_path, [event("aten::mm", "cpu_op", 350.0, 10.0)]))
    assert (len(frames), frames.at(np.array([1000])), frames.inside((np.array([0]), np.array([9])))) == (0, [""], {})


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/home/me/job/train.py(12): main", "main() (job/train.py:12)"),
        ("train.py(3): <lambda>", "<lambda> (train.py:3)"),
        ("nn.Module: Block_3", "nn.Module: Block_3"),
    ],
)
def test_how_a_frame_is_spelled(name: str, shown: str) -> None:
    assert readable(name) == shown


def test_a_rank_that_calls_an_operator_more_often_is_reported_with_its_line(tmp_path: Path) -> None:
    """Two calls in main on both ranks, five more in evaluate on rank 1: 200 us of device time against 700."""
    main = event("train.py(10): main", "python_function", 0.0, 10_000.0)
    evaluate = event("train.py(90): evaluate", "python_function", 1000.0, 200.0)
    peer = view(tmp_path, [main, *products(2, at=10.0, number=1)])
    late = view(tmp_path, [main, evaluate, *products(2, at=10.0, number=1), *products(5, at=1000.0, number=10)], 1)
    (found,) = operator_excess(late, peer)
    assert (found.name, found.calls, found.peers_calls) == ("aten::mm", 7, 2)
    assert (found.ms, found.peers_ms) == (pytest.approx(0.7), pytest.approx(0.2))
    assert found.line == "evaluate() (train.py:90)"
    assert operator_excess(peer, late) == []


def test_nested_operators_are_counted_once(tmp_path: Path) -> None:
    """matmul takes 100 us, of which mm 60, of which empty 10: 40, 50 and 10 by themselves. Another thread is apart."""
    rows = [("aten::matmul", 0.0, 100.0), ("aten::mm", 20.0, 60.0), ("aten::empty", 30.0, 10.0)]
    own = view(
        tmp_path, [*(event(n, "cpu_op", s, d) for n, s, d in rows), event("aten::add", "cpu_op", 25.0, 5.0, tid=2)]
    )
    names = [own.trace.strings[code] for code in own.trace.events.name.tolist()]
    times = dict(zip(names, self_time(own).tolist(), strict=True))
    assert {n: ns for n, ns in times.items() if n.startswith("aten")} == {
        "aten::matmul": 40_000, "aten::mm": 50_000, "aten::empty": 10_000, "aten::add": 5_000,
    }  # fmt: skip
    assert operator_work(own).ns.sum() <= 105_000


def test_self_times_of_any_calls() -> None:
    """By the definition, one call after the other: on several threads, with equal starts, and ranges that overlap."""
    rng = np.random.default_rng(5)
    for count in (0, 1, 2, 300):
        thread, start = rng.integers(3, size=count), rng.integers(200, size=count)
        duration = rng.integers(40, size=count)
        rows = sorted(range(count), key=lambda row: (thread[row], start[row], -duration[row], row))
        expected = duration.astype(float)
        for place, row in enumerate(rows):
            open_ = [r for r in rows[:place] if thread[r] == thread[row] and start[r] + duration[r] > start[row]]
            if open_:
                caller = open_[-1]
                expected[caller] -= min((start + duration)[[row, caller]]) - start[row]
        assert self_time_of(thread, start, duration).tolist() == np.maximum(expected, 0.0).tolist()


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        ("aten::mm", "[[2, 3], [3, 5]]", 60),
        ("aten::addmm", "[[5], [2, 3], [3, 5], [], []]", 60),
        ("aten::bmm", "[[7, 2, 3], [7, 3, 5]]", 420),
        ("aten::mm", "[[2, 3], [4, 5]]", None),  # they do not fit
        ("aten::mm", "", None),
        ("aten::mm", "[[2, 3]]", None),
        ("aten::mm", "no json", None),
        ("aten::add", "[[2, 3], [2, 3], []]", None),
    ],
)
def test_operations_of_a_product(operator: str, shapes: str, expected: int | None) -> None:
    assert flop(operator, shapes) == expected


def test_what_a_device_achieves(tmp_path: Path) -> None:
    """Five products of 2e9 operations, 100 us each: 20 TFLOP/s while they run; in a step of 10 ms 1 TFLOP/s."""
    found = efficiency([view(tmp_path, products(5, at=10.0, number=1))], step_ms=10.0)
    assert found is not None
    (group,) = found.groups
    assert (group.name, group.ms_per_step, group.kernels_per_step) == ("matrix products", pytest.approx(0.5), 5)
    assert (group.tflops, group.peak_pct) == (pytest.approx(20.0), pytest.approx(100 * 20 / 989))
    assert (found.tflops, found.peak_pct) == (pytest.approx(1.0), pytest.approx(100 / 989))
    assert (found.shapes, found.counted_pct, found.plain_ms, group.bound) == (True, 100.0, 0.0, "math")


def test_products_without_tensor_cores_and_small_kernels_are_counted(tmp_path: Path) -> None:
    plain = products(2, at=10.0, number=1, kernel="ampere_sgemm_128x64_tn")
    small = products(3, at=500.0, number=20, kernel="void vectorized_elementwise_kernel<float>", each=4.0)
    for row in small:
        row["name"] = row["name"].replace("aten::mm", "aten::add")
    found = efficiency([view(tmp_path, [*plain, *small], device="Some Accelerator")], step_ms=10.0)
    assert found is not None
    assert (found.plain_ms, found.small_kernels, found.small_ms) == (pytest.approx(0.2), 3, pytest.approx(0.012))
    assert (found.peak_tflops, found.peak_pct) == (None, None), "of a device that is in no table no peak is known"


def test_without_steps_or_device_nothing_is_reported(tmp_path: Path) -> None:
    bare = view(tmp_path, [event("aten::mm", "cpu_op", 0.0, 10.0)])
    assert efficiency([bare], 10.0) is None
    assert efficiency([view(tmp_path, products(1, at=1.0, number=1))], None) is None


def test_the_recorded_job_has_the_operations_of_its_model(recorded) -> None:
    """fsdp2_gpu_bound trains 436 million parameters with 16,384 tokens a step and rank: 6 N tokens are 42.9e12."""
    loaded = recorded("fsdp2_gpu_bound")
    found = efficiency([make_view(t, t.rank or 0) for t in loaded.traces], step_ms=102.0)
    assert found is not None
    assert found.tflop_per_step == pytest.approx(42.88, rel=0.01)
    assert found.peak_pct == pytest.approx(100 * 42.88 / 0.102 / 989, rel=0.01)


@pytest.mark.parametrize(
    ("operator", "kernel", "group"),
    [
        ("aten::mm", "nvjet_tst", "matrix products"),
        ("aten::addmm", "ampere_sgemm", "matrix products"),
        ("aten::_flash_attention_forward", "flash_fwd_kernel", "attention"),
        ("aten::cudnn_convolution", "sm90_xmma_fprop", "convolutions"),
        ("aten::_foreach_add_", "multi_tensor_apply_kernel", "optimizer"),
        ("aten::split_with_sizes_copy", "split_kernel", "copies for sharding"),
        ("triton_poi_fused_add", "triton_poi_fused_add", "compiled (Triton)"),
        ("", "Cijk_Ailk_Bljk", "matrix products"),
        ("aten::gelu", "vectorized_elementwise_kernel", "element-wise, norms and losses"),
    ],
)
def test_kinds_of_work(operator: str, kernel: str, group: str) -> None:
    assert group_of(operator, kernel) == group


def test_tensor_cores_are_identified_by_name() -> None:
    names = {
        "nvjet_tst_128": True,
        "sm80_xmma_gemm_f16": True,
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_stage3_warpsize2x2x1_tensor16x8x8_kernel": True,
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_kernel": False,
        "cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4": True,
        "cutlass_80_simt_sgemm_128x128_8x4_tn_align1": False,
        "ampere_sgemm_128x64_tn": False,
        "my_gemm": None,
    }
    assert {name: uses_tensor_cores(name) for name in names} == names


def test_products_and_attention_in_32_bits_are_priced_as_one_group() -> None:
    plain = "products and attention in 32 bits"
    groups = {
        ("aten::mm", "ampere_sgemm_128x64_tn"): plain,
        ("aten::mm", "nvjet_tst_128"): "matrix products",
        (
            "aten::_efficient_attention_forward",
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)",
        ): plain,
        ("aten::_flash_attention_forward", "void pytorch_flash::flash_fwd_kernel<bf16>"): "attention",
        ("aten::add", "void vectorized_elementwise_kernel<float>"): "element-wise, norms and losses",
    }
    assert {key: priced_group(*key) for key in groups} == groups


@pytest.mark.parametrize(
    ("device", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("AMD Instinct MI300X", 1307),
        ("Tesla V100-SXM2", 125),
    ],
)
def test_peaks_by_name(device: str, tflops: float) -> None:
    peak = peak_of(device)
    assert peak is not None
    assert peak.tflops == tflops
    assert peak_of(f"{device} MIG 1g.10gb") is None
    assert peak_of("A new one") is peak_of(None) is None

"""Samples of each library are communication of their kind, and match no other row."""

from __future__ import annotations

import re

import pytest

from rankscope.trace.columns import Category
from rankscope.trace.kineto.collectives import kind_of_name
from rankscope.trace.libraries import LIBRARIES
from rankscope.trace.library import Library
from rankscope.trace.names import Kind, classify, function, is_communication, is_fused

SAMPLES = [(row, name, kind) for row in LIBRARIES for name, kind in row.samples]
OTHERS = [name for row in LIBRARIES for name in row.others]


@pytest.mark.parametrize(("row", "name", "kind"), SAMPLES, ids=lambda x: getattr(x, "name", None) or str(x)[:40])
def test_a_sample_is_communication_of_its_kind(row: Library, name: str, kind: str) -> None:
    assert is_communication(name)
    assert kind_of_name(name) == kind
    operator = bool(row.prefix) and name.startswith(f"{row.prefix}:")
    assert classify(name, Category.CPU_OP if operator else Category.KERNEL) is Kind.COMMUNICATION
    by_kernel = (r for r in LIBRARIES if r.kernels and re.search(r.kernels, function(name), re.IGNORECASE))
    assert row.prefix in name.partition(":")[0] if operator else next(by_kernel) is row


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_leave_the_device_is_compute(name: str) -> None:
    assert classify(name, Category.KERNEL) is Kind.COMPUTE


@pytest.mark.parametrize(
    "name",
    [
        "triton_poi_fused_all_gather_into_tensor_split_with_sizes_copy_1",
        "triton_red_fused_all_reduce_0",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, nccl_like_functor>>(int)",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16>(all_reduce_kernel)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8>",
        "void fbgemm_gpu::permute_pooled_embs_kernel<c10::BFloat16>",
        "void vllm::moe::dispatch_tokens_kernel<8>(float const*)",
        "void mylib::compute_all_reduce_indices_kernel<4>(int*)",
        "void all_gather_copy_in_kernel<float>(float*)",
        "void nccl_tests_verify<float>(float*)",
        "void step::combine<float>(float*)",
        "reduce_scatter_indices_kernel",
        "all_to_all_permute_kernel",
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(params)",
        "void gloo_relu_kernel(float*)",
    ],
)
def test_names_that_only_sound_like_it_are_compute(name: str) -> None:
    assert classify(name, Category.KERNEL) is Kind.COMPUTE


@pytest.mark.parametrize(
    "name",
    [
        "kernel_consumer_gemm_persistent",
        "kernel_fused_gemm_allreduce",
        "kernel_gemm_rs_producer_fuse_scatter",
        "mega_kernel_dispatch_token_moe_grouped_gemm",
        "void deep_gemm::sm100_fp8_fp4_mega_moe_impl<8192u, 7168u>(void*)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmARUniversal<cute::tuple<int>>>(Params)",
    ],
)
def test_compute_and_communication_in_one_kernel_is_a_class_of_its_own(name: str) -> None:
    assert is_fused(name)
    assert classify(name, Category.KERNEL) is Kind.FUSED


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("void vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*)", "vllm::cross_device_reduce_1stage"),
        (
            "void c10d::(anonymous namespace)::one_shot_all_reduce_kernel<float>(int)",
            "c10d::one_shot_all_reduce_kernel",
        ),
        ("void <unnamed>::kernel<1>(int)", "kernel"),
        (
            "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataE",
            "aiter::reduce_scatter_cross_device_store",
        ),
        ("_ZN12_GLOBAL__N_14spinEv", "spin"),
        ("_Z3addPfS_", "add"),
        ("allgather_kernel_0d1d2de3de", "allgather_kernel"),
        ("triton_poi_fused_add_1024", "triton_poi_fused_add_1024"),
        ("__amd_rocclr_copyBuffer.kd", "__amd_rocclr_copyBuffer"),
        ("", ""),
        ("_ZN", "_ZN"),
        ("_ZN99999", ""),
    ],
)
def test_a_kernels_function(name: str, plain: str) -> None:
    assert function(name) == plain

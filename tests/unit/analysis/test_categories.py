from __future__ import annotations

import pytest

from rankscope.trace.columns import Category
from rankscope.trace.names import Kind, classify, family, is_communication, is_input

COMMUNICATION = [
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)",
    "ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs)",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "void cross_device_reduce_1stage<float, 2>(RankData*)",
    "void two_shot_all_reduce_kernel_inplace<float>(float**)",
    "multimem_all_reduce_kernel<float>",
    "nvshmem_barrier_all_kernel",
    "void deep_ep::internode::dispatch<true>(int)",
    "void deep::ep::combine<8>(int)",
    "gloo:all_reduce",
]
COMPUTE = [
    "Cijk_Ailk_Bljk_SB_MT64x64x16",
    "triton_poi_fused_add_0",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
    "void cublasLt::splitKreduce_kernel<32, 16>",
    "void at::native::vectorized_gather_kernel<16, long>(char*)",
    "",
]


@pytest.mark.parametrize("name", COMMUNICATION)
def test_communication(name: str) -> None:
    assert is_communication(name)


@pytest.mark.parametrize("name", COMPUTE)
def test_compute(name: str) -> None:
    assert classify(name, Category.KERNEL) is Kind.COMPUTE


def test_copies_wherever_they_stand() -> None:
    assert classify("Memcpy DtoH (Device -> Pinned)", Category.GPU_MEMCPY) is Kind.COPY
    assert classify("__amd_rocclr_copyBuffer.kd", Category.KERNEL) is Kind.COPY
    assert classify("CopyDeviceToHost", Category.KERNEL) is Kind.COPY


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", Kind.COMPUTE),
        ("gloo:all_gather", Kind.COMMUNICATION),
        ("record_param_comms", Kind.OTHER),
        ("c10d::allreduce_", Kind.OTHER),
        ("_c10d_functional::wait_tensor", Kind.WAIT),
        ("autograd::engine::evaluate_function: AddmmBackward0", Kind.OTHER),
        ("AddmmBackward0", Kind.COMPUTE),
        ("RegisterPostBackwardFunctionBackward", Kind.OTHER),
        ("CompiledFunctionBackward", Kind.COMPUTE),
    ],
)
def test_operators(name: str, kind: Kind) -> None:
    assert classify(name, Category.CPU_OP) is kind


def test_input_regions() -> None:
    assert is_input("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    assert not is_input("DistributedDataParallel.forward")


def test_families_are_for_reading() -> None:
    assert family("ampere_bf16_s16816gemm_bf16_128x128", Kind.COMPUTE) == "matmul"
    assert family("whatever", Kind.COMMUNICATION) == "communication"

"""Communication libraries and the names their work bears in a trace. To add one: a row. Nobody else knows such names.

Names change with releases, so each row holds samples from real traces; a test reads them, and a report of a kernel that
was taken for compute becomes a sample first.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIBRARIES", "Library"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """One library. Patterns are regular expressions, searched for without regard to case."""

    name: str
    kernels: str
    """What the names of its device kernels contain; empty where it has none."""
    prefix: str = ""
    """Of its annotations and CPU operators: ``gloo`` for ``gloo:all_reduce``."""
    on_host: bool = False
    """Whether what bears the prefix is the call itself, and not only its launch."""
    kinds: tuple[tuple[str, str], ...] = ()
    """(part of a kernel's name, kind of collective) where the name does not spell the collective."""
    samples: tuple[tuple[str, str], ...]
    """(name of a kernel or operator, kind of collective that it says; ``unknown`` where it says none)."""


LIBRARIES: tuple[Library, ...] = (
    Library(
        name="NCCL",
        kernels=r"^nccl(Dev)?Kernel|ncclDevKernel|ncclKernel|^ncclSymk|^ncclSymDevKernel",
        prefix="nccl",
        samples=(
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
            ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", "allreduce"),
            ("ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs)", "allgather"),
            ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "unknown"),
        ),
    ),
    Library(name="RCCL", kernels=r"^(void\s+)?rccl", prefix="rccl", samples=(("rccl:all_gather", "allgather"),)),
    Library(name="gloo", kernels="", prefix="gloo", on_host=True, samples=(("gloo:all_reduce", "allreduce"),)),
    Library(name="MPI", kernels="", prefix="mpi", on_host=True, samples=(("mpi:broadcast", "broadcast"),)),
    Library(name="UCC", kernels="", prefix="ucc", on_host=True, samples=(("ucc:all_reduce", "allreduce"),)),
    Library(name="XCCL", kernels="", prefix="xccl", on_host=True, samples=(("xccl:all_reduce", "allreduce"),)),
    Library(name="oneCCL", kernels=r"oneccl|^ccl_", prefix="oneccl", on_host=True, samples=(("oneccl:send", "send"),)),
    Library(name="MSCCL", kernels="msccl", samples=(("mscclKernel_Sum_half_LL_false", "unknown"),)),
    Library(
        name="torch symmetric memory",
        kernels=r"multimem_|_multimem|(one|two)_shot_all_reduce|(all_reduce|allreduce)_kernel",
        samples=(
            ("void two_shot_all_reduce_kernel_inplace<float>(float**)", "allreduce"),
            ("multimem_all_reduce_kernel<float>", "allreduce"),
        ),
    ),
    Library(
        name="NVSHMEM",
        kernels=r"^(void\s+)?nvshmem|nvshmemi?_",
        samples=(("nvshmem_barrier_all_kernel", "unknown"),),
    ),
    Library(
        name="vLLM custom all-reduce",
        kernels="cross_device_reduce",
        samples=(("void cross_device_reduce_1stage<float, 2>(RankData*)", "allreduce"),),
    ),
    Library(
        name="aiter",
        kernels=r"_cross_device_(store|load)",
        samples=(("void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(RankData*)", "reduce_scatter"),),
    ),
    Library(
        name="TensorRT-LLM and FlashInfer",
        kernels=r"(one|two)shotAllreduce(Fusion)?Kernel|allreduce_fusion_kernel",
        samples=(
            (
                "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __nv_bfloat16>()",
                "allreduce",
            ),
            ("void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<4, __nv_bfloat16>()", "allreduce"),
            ("void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 2>(AllReduceParams)", "allreduce"),
        ),
    ),
    Library(
        name="Transformer Engine userbuffers",
        kernels="userbuffers_",
        kinds=(("_rs", "reduce_scatter"), ("_ag", "allgather"), ("push", "sendrecv"), ("sum_inplace", "allreduce")),
        samples=(
            ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int)", "reduce_scatter"),
            ("userbuffers_fp16_sum_inplace_gpu_rw_ag", "allgather"),
            ("userbuffers_fp16_sum_inplace_gpu_rw", "allreduce"),
            ("kuserbuffers_pushrecv(int, int, int*, int*, int)", "sendrecv"),
        ),
    ),
    Library(
        name="DeepEP",
        kernels=r"\bdeep_ep::|\bep::",
        kinds=(("dispatch", "all_to_all"), ("combine", "all_to_all")),
        samples=(("void deep_ep::internode::dispatch<true>(int)", "all_to_all"),),
    ),
    Library(
        name="MORI",
        kernels=r"\bEp(Dispatch|Combine)\w*Kernel",
        kinds=(("epdispatch", "all_to_all"), ("epcombine", "all_to_all")),
        samples=(("EpDispatchIntraNodeKernel_bf16", "all_to_all"), ("EpCombineIntraNodeKernel_bf16", "all_to_all")),
    ),
)
"""The first row whose pattern fits names the library."""

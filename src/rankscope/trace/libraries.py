"""Communication libraries and the names of their work in a trace.

To add one: a row. Only HTA's own classification (``analysis.hta``) also contains names of kernels; operators of PyTorch
(``c10d::``) are not in this table.

Other packages add rows through the entry points ``rankscope.libraries`` (see :mod:`rankscope.plugins`).

Patterns are matched against a kernel's *function*: its qualified name without return type, template arguments and
parameters (:func:`rankscope.trace.names.function`), so that ``all_reduce`` in a template argument does not count as an
all-reduce. A pattern matches a namespace or the begin of a function; a word somewhere in a name is not enough.

Names change with releases, so each row has samples from real traces and sources, which a test reads. When a kernel is
reported that was taken for compute, it becomes a sample first.
"""

from __future__ import annotations

from rankscope import plugins
from rankscope.trace.library import Library

__all__ = ["LIBRARIES", "NEVER", "OURS"]


NEVER = r"^triton_|^at::native::|^cub::|^thrust::|^cutlass::|^cudnn|^cublas"
"""Functions that are matched against no row. Inductor names a kernel after the operators around it, and
``triton_red_fused_ all_reduce_wait_tensor`` reduces within the device; the others are libraries that do not
communicate. The operation of a CUTLASS kernel is in its template arguments: see ``fused``."""

_NS = r"(?:^|::)"
_ALL = r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|broadcast)"
_SHOT = rf"{_NS}(?:\w+_)?(?:one|two)_?shot_?{_ALL}\w*$"
_DISPATCH = (("dispatch", "all_to_all"), ("combine", "all_to_all"))
_VARIANT = (
    r"(?:v|v2|1d|2d|ll|st|opt|ipc|push|pull|ring|tma|rma|nvls|vec|lastdim|naive|packed|fused|chunked|strided|single|"
    r"simple|multimem|one_shot|two_shot|double_tree|intra_node|inter_node|1node|2node|no_barrier|ctx_wrapper|kernel)"
)

OURS: tuple[Library, ...] = (
    Library(
        name="NCCL",
        kernels=r"^nccl(?:Dev|Symk?)?(?:Dev)?Kernel|^nccl[A-Z]\w*Kernel|^ncclSymk|^nccl_?gin|^ncclx?_?ctran|^ncclKernel",
        prefix="nccl",
        samples=(
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
            ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", "allreduce"),
            ("ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs)", "allgather"),
            ("ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)", "allreduce"),
            ("ncclSymkDevKernel_ReduceScatter_LDMC_sum_f8e4m3(ncclSymkDevWorkArgs4K)", "reduce_scatter"),
            ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "sendrecv"),
            ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "unknown"),
            ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce"),
        ),
    ),
    Library(
        name="RCCL",
        kernels=r"^rccl\w*Kernel|^rccl_",
        prefix="rccl",
        samples=(("rccl:all_gather", "allgather"), ("rcclGenericKernel", "unknown")),
    ),
    Library(name="gloo", prefix="gloo", on_host=True, samples=(("gloo:all_reduce", "allreduce"),)),
    Library(name="MPI", prefix="mpi", on_host=True, samples=(("mpi:broadcast", "broadcast"),)),
    Library(name="UCC", kernels=r"^ucc_\w+", prefix="ucc", on_host=True, samples=(("ucc:all_reduce", "allreduce"),)),
    Library(name="XCCL", prefix="xccl", samples=(("xccl:all_reduce", "allreduce"),)),
    Library(
        name="oneCCL",
        kernels=r"^(?:ccl::)?oneccl_|^(?:ccl::)?sycl_(?:allreduce|allgatherv|reduce_scatter|alltoallv?|broadcast)r?_"
        r"|^(?:allreduce|alltoallv?|allgatherv|reduce_scatter)_(?:kernel|execution)_",
        prefix="oneccl",
        on_host=True,
        samples=(
            ("oneccl:send", "send"),
            ("oneccl_allreduce_pcie", "allreduce"),
            ("sycl_reduce_scatter_medium", "reduce_scatter"),
            ("allreduce_kernel_bfloat16", "allreduce"),
        ),
        others=("ccl_relabel_components(int*, int const*, int, int)",),
    ),
    Library(
        name="HCCL",
        kernels=r"^hcom_?(?:all|reduce|broadcast|send|receive|batch)|^hccl_?\w",
        prefix="hccl",
        samples=(
            ("hcom_allReduce__503_32_1", "allreduce"),
            ("hcom_reduceScatter__063_1_1", "reduce_scatter"),
            ("hccl_all_gather_kernel", "allgather"),
        ),
    ),
    Library(
        name="MSCCL and MSCCL++",
        kernels=r"^msccl_?Kernel|^msccl_kernel|^mscclpp::(?!.*Probe)|^(?:sglang::)?allreduce_LL_[12]node$"
        r"|^allreduce[1-9]$",
        samples=(
            ("mscclKernel_Sum_half_LL_false", "unknown"),
            ("void mscclpp::executionKernel<__half, mscclpp::PacketType>(int, __half*, __half*)", "unknown"),
            ("void mscclpp::collective::allreduceAllPairs<(mscclpp::ReduceOp)0, __half>(void*, void*)", "allreduce"),
            ("void sglang::allreduce_LL_1node<__nv_bfloat16>(void*)", "allreduce"),
        ),
        others=("void mscclpp::collective::fp8NvlsSupportProbeKernel()",),
    ),
    Library(
        name="custom all-reduce of vLLM and SGLang",
        kernels=rf"{_NS}cross_device_reduce_",
        kinds=(("cross_device_reduce", "allreduce"),),
        samples=(
            ("void cross_device_reduce_1stage<float, 2>(RankData*)", "allreduce"),
            ("void sglang::cross_device_reduce_1stage<__half, 8>(sglang::RankData*, sglang::RankSignals)", "allreduce"),
        ),
    ),
    Library(
        name="aiter",
        kernels=r"^quickreduce::|^aiter::(?:cross_device_|reduce_scatter_(?:cross|split)|local_device_load_|allgather_|"
        r"all_?reduce|qknorm_allreduce|(?:start|end|two)_sync_latency|(?:ar|ag|rs)_(?:ll_)?gfx)|^reduce_scatter_cross_device"
        r"|^local_device_load_rmsnorm|^all_?reduce_(?:rmsnorm_)?prototype",
        kinds=(("local_device_load", "allreduce"), ("ag_gfx", "allgather"), ("rs_gfx", "reduce_scatter")),
        samples=(
            ("void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(RankData*)", "reduce_scatter"),
            (
                "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataENS_11RankSignalsE",
                "reduce_scatter",
            ),
            ("void aiter::local_device_load_rmsnorm_512n<__hip_bfloat16, 256>(aiter::RankSignals)", "allreduce"),
            ("void aiter::allgather_lastdim<__hip_bfloat16, 8>(aiter::RankData*)", "allgather"),
            (
                "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<__half>, __half>",
                "allreduce",
            ),
            ("void aiter::allreduce_fusion_kernel_1stage<__hip_bfloat16, 8>()", "allreduce"),
        ),
        others=("void aiter::add_rmsnorm_quant_kernel<__hip_bfloat16, 256, 8>",),
    ),
    Library(
        name="TensorRT-LLM and FlashInfer",
        kernels=rf"{_NS}(?:flashinfer|tensorrt_llm)::(?:\w+::)*(?:\w*{_ALL}\w*|\w*a2a(?:dispatch|combine)\w*|"
        r"rmsNormLamport\w*|ipc_\w*(?:rsag|push)\w*|push_oneshot\w*|\w*_a2a_kernel)$"
        r"|^moeA2A(?:Dispatch|Combine)Kernel|^moeAllToAllKernel|^(?:moe(?:reduce|finalize)_)?allreduce_fusion_kernel_",
        fused=r"cutlass::device_kernel<.*(?:gemm_?all_?reduce|GemmARUniversal|all_?gather_?gemm|gemm_?reduce_?scatter)"
        r"|^\w*all_gather_matmul\w*kernel|megamoe",
        kinds=(("rmsnormlamport", "allreduce"), ("rsag", "allreduce"), ("push", "allreduce"), ("a2a", "all_to_all")),
        samples=(
            (
                "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __nv_bfloat16>()",
                "allreduce",
            ),
            ("void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<8, __nv_bfloat16>()", "allreduce"),
            ("void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<__nv_bfloat16, 1>", "all_to_all"),
            ("void tensorrt_llm::kernels::lowPrecisionTwoShotAllReduceKernel<__half>()", "allreduce"),
            ("void flashinfer::ulysses_a2a_kernel<__nv_bfloat16>()", "all_to_all"),
        ),
        others=(
            "void tensorrt_llm::kernels::moe_comm::moeA2APrepareDispatchKernel<8>(int const*)",
            "void flashinfer::trtllm_allreduce_fusion::lamport_initialize_kernel<float>(float*)",
            "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)",
        ),
    ),
    Library(
        name="Transformer Engine userbuffers",
        kernels=rf"{_NS}k?userbuffers_(?!fp16_gemm)",
        kinds=(("_rs", "reduce_scatter"), ("_ag", "allgather"), ("push", "sendrecv"), ("sum_inplace", "allreduce")),
        samples=(
            ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int)", "reduce_scatter"),
            ("userbuffers_fp16_sum_inplace_gpu_rw_ag", "allgather"),
            ("userbuffers_fp16_sum_inplace_gpu_rw", "allreduce"),
            ("kuserbuffers_pushrecv(int, int, int*, int*, int)", "sendrecv"),
            ("void tensorrt_llm::kernels::ub::userbuffers_fp16_sum_inplace_gpu_mc_rmsnorm<8>()", "allreduce"),
        ),
    ),
    Library(
        name="DeepEP, its relatives and PPLX",
        kernels=rf"{_NS}(?:deep_?ep|dpsk|ep|nixl_ep|uccl|hybrid_ep)::(?:\w+::)*(?!\w*epilogue)(?:hybrid_)?"
        r"(?:dispatch|combine|notify|cached_notify|barrier|clean_low_latency|device_sync|engram_fetch|pp_send|pp_recv)\w*$"
        rf"|{_NS}pplx::\w|{_NS}a2a_(?:dispatch|combine)_(?:send|recv)_kernel",
        fused=r"^(?:void\s+)?deep_gemm::\w*mega_moe_impl|\bflashmoe::|\baristos::moe::",
        kinds=(*_DISPATCH, ("notify", "all_to_all"), ("barrier", "barrier"), ("pp_send", "send"), ("pp_recv", "recv")),
        samples=(
            ("void deep_ep::internode::dispatch<true>(int)", "all_to_all"),
            ("void deep_ep::intranode::notify_dispatch<8>(int const*, int*, int const*)", "all_to_all"),
            ("void deep_ep::elastic::hybrid_dispatch_impl<8, 7168>(void*)", "all_to_all"),
            ("void dpsk::ep::internode::dispatch_ll<false, 8, true>(int4*)", "all_to_all"),
            ("void hybrid_ep::combine_kernel<8, 4, 2, 128>(hybrid_ep::combine_kernel_param_t)", "all_to_all"),
            ("void uccl::internode_ll::combine<true, 7168, 11>(void*)", "all_to_all"),
            ("void a2a_dispatch_send_kernel<true, 16, 1>(unsigned long)", "all_to_all"),
        ),
        others=(
            "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
            "void deep_ep::elastic::dispatch_copy_epilogue_impl<8>(void*)",
            "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 8u, 128u, 128u, 128u>",
        ),
    ),
    Library(
        name="MORI",
        kernels=rf"{_NS}ep_?(?:dispatch|combine)_?(?!CopyToStaging)\w+$|^mori::(?:collective|shmem|ccl)::"
        r"|^(?:OneShot)?(?:All2all|AllGather|AllReduce|ReduceScatter|Broadcast)\w*(?:Sdma|Ring|P2p|Async)\w*Kernel"
        r"|^(?:mori_)?_?shmem_barrier",
        kinds=(
            ("dispatch", "all_to_all"),
            ("combine", "all_to_all"),
            ("all2all", "all_to_all"),
            ("barrier", "barrier"),
        ),
        samples=(
            ("EpDispatchIntraNodeKernel_bf16", "all_to_all"),
            ("EpCombineIntraNodeKernel_bf16_nop2p", "all_to_all"),
            ("void mori::moe::EpDispatchLowLatencyAsyncRecvTransfer<__hip_bfloat16>()", "all_to_all"),
            ("void mori::collective::OneShotAll2allSdmaKernel<float>()", "all_to_all"),
            ("mori_shmem_barrier_all_block", "barrier"),
        ),
        others=("void mori::moe::ConvertDispatchOutputKernel<__hip_bfloat16>()",),
    ),
    Library(
        name="Triton-distributed and Iris",
        kernels=rf"^(?:reset_signal_and_|local_copy_and_|copy_and_|_copy_and_reset_and_)?barrier_all_\w*(?:kernel|once_block)\w*$"
        rf"|^kernel_local_copy_and_barrier_all|^{_ALL}(?:_{_VARIANT})*_kernel(?:_v\d)?$|^kernel_(?:ag|all2all)_\w+"
        rf"|^{_ALL}_(?:ring|one_shot|two_shot|double_tree)\w*_kernel$"
        r"|^(?:tile_)?kernel_(?:dispatch|combine)_token|^(?:nv|mx)shmem_device_producer_|^_forward_(?:push|pull)_\w*kernel"
        r"|^kernel_inter_node_p2p|^(?:p2p_(?:put|copy)_kernel|mori_putmem_p2p_kernel)$|^persistent_all_(?:reduce|gather)",
        fused=r"^kernel_consumer_(?:gemm|flash_attn|m_parallel_scatter_group_gemm)|^kernel_fused_(?:ag_gemm|gemm_allreduce)"
        r"|^kernel_gemm_(?:rs|ar|a2a)_producer|^kernel_persistent_(?:tma_)?gemm_notify|^kernel_all_to_all_gemm_consumer"
        r"|^mega_kernel_(?:dispatch_token|moe_grouped_gemm)|^moe_gather_(?:ar|rs)_grouped_gemm|^MEGA_TRITON_KERNEL",
        kinds=(*_DISPATCH, ("_ag_", "allgather"), ("all2all", "all_to_all"), ("barrier", "barrier")),
        samples=(
            ("allreduce_two_shot_multimem_intra_node_kernel", "allreduce"),
            ("reduce_scatter_ring_push_1d_intra_node_rma_kernel", "reduce_scatter"),
            ("kernel_local_copy_and_barrier_all", "barrier"),
            ("barrier_all_intra_node_kernel", "barrier"),
            ("kernel_dispatch_token_intra_node", "all_to_all"),
            ("nvshmem_device_producer_all_gather_2d_put_block_kernel", "allgather"),
            ("all_to_all_v_2d_inter_node_kernel", "all_to_all"),
        ),
        others=("calc_gather_scatter_index_kernel", "reduce_topk_tma_kernel", "moe_grouped_gemm_kernel"),
    ),
    Library(
        name="NVSHMEM, rocSHMEM and Intel SHMEM",
        kernels=r"^(?:nv|roc|i)shmem(?!i_(?:init|team))\w*|\w_on_stream_kernel(?:_threadgroup)?$",
        kinds=(("barrier", "barrier"), ("sync_", "barrier"), ("rdxn", "allreduce"), ("fcollect", "allgather")),
        samples=(
            ("nvshmem_barrier_all_kernel", "barrier"),
            ("nvshmemi_proxy_barrier_kernel", "barrier"),
            ("void rdxn_on_stream_kernel<float, (rdxn_ops)3>(int, float*, float const*, unsigned long)", "allreduce"),
            ("void fcollect_on_stream_kernel<int>(int, int*, int const*, unsigned long)", "allgather"),
            ("sync_on_stream_kernel_threadgroup(int, int)", "barrier"),
            ("nvshmemi_signal_wait_until_on_stream_kernel(unsigned long*, int, unsigned long)", "unknown"),
        ),
        others=("nvshmemi_init_array_kernel(void**)",),
    ),
    Library(
        name="torch symmetric memory",
        kernels=rf"^c10d::(?:symmetric_memory|nvshmem_extension|intra_node_comm)::|{_SHOT}|{_NS}(?:\w+_)?multimem_\w+"
        rf"|^(?:barrier|(?:lsa_)?put_signal|(?:lsa_)?wait_signal)_kernel$|{_NS}{_ALL}_kernel(?:_inplace)?$",
        kinds=(("alltoallv", "all_to_all"), ("put_signal", "send"), ("wait_signal", "recv"), ("barrier", "barrier")),
        samples=(
            ("void two_shot_all_reduce_kernel_inplace<float>(float**)", "allreduce"),
            ("multimem_all_reduce_kernel<float>", "allreduce"),
            (
                "void c10d::symmetric_memory::(anonymous namespace)::multimem_one_shot_reduce_kernel<float, 16>()",
                "reduce",
            ),
            ("void c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)", "barrier"),
            ("c10d::symmetric_memory::wait_signal_kernel(unsigned int**, int, int, int, int, unsigned long)", "recv"),
            ("c10d::symmetric_memory::put_signal_kernel(unsigned int**, int, int, int, int, unsigned long)", "send"),
            ("c10d::nvshmem_extension::allToAllV(void*, void*, long*, long*)", "all_to_all"),
            ("void c10d::intra_node_comm::oneShotAllReduceKernel<8u, true>(c10::BFloat16*)", "allreduce"),
            ("void fbgemm_gpu::one_shot_all_reduce<8, true>(int, int)", "allreduce"),
            ("inkling_multimem_one_shot_fused_kernel", "unknown"),
        ),
        others=(
            "void at::native::vectorized_elementwise_kernel<4, all_reduce_kernel>(int)",
            "triton_red_fused__fused_rms_norm_all_reduce_wait_tensor_3",
        ),
    ),
)
"""The first row whose pattern fits names the library."""

LIBRARIES = (*OURS, *plugins.load("libraries", Library, frozenset(row.name for row in OURS), "name"))
"""Rows of other packages come last, so they only apply to names that no row of ours matches."""

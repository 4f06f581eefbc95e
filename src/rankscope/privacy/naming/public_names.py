"""Public names of events: those of PyTorch, of NCCL and CUDA's libraries, and of the table of libraries.

A name is never public because it looks harmless. It is split, each part is looked up here, and a part that is not found
is the user's own.
"""

from __future__ import annotations

import functools
import re
from importlib import resources

from rankscope.trace.libraries import OURS
from rankscope.trace.names import function, is_communication

__all__ = [
    "CALL",
    "COPIES",
    "CPP_ROOTS",
    "DYNAMO",
    "EXACT",
    "LIBRARY_ROOTS",
    "OPERATOR_NAMESPACES",
    "OPTIMIZERS",
    "OVERHEAD",
    "is_library_kernel",
    "known_words",
    "of_library",
    "words_of",
]


def _listed(name: str) -> list[str]:
    """Return the words of one of the lists beside this file."""
    text = (resources.files("rankscope.privacy.naming") / name).read_text(encoding="ascii")
    return [word for line in text.splitlines() if not line.startswith("#") for word in line.split()]


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

OPERATOR_NAMESPACES = frozenset(
    {
        *("aten", "prims", "prim", "c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd"),
        *("symm_mem", "inductor", "fsdp", "quantized", "torchvision", "fbgemm", "profiler", "mkldnn", "xformers"),
    }
)
"""Namespaces of operators of PyTorch and of related packages. The words of the operator are looked up as well."""

CPP_ROOTS = frozenset(
    {
        *(
            "at",
            "c10",
            "c10d",
            "torch",
            "std",
            "cub",
            "thrust",
            "cutlass",
            "cute",
            "cuda",
            "cudnn",
            "cublasLt",
            "at_cuda",
        ),
        *("at_cuda_detail", "cask_cudnn", "cask_cudnn_infer", "cask_plugin__5x_cudnn", "xmma__5x_cudnn", "cublas"),
        *("cutlass_cudnn_infer", "cutlass_cudnn_train", "cutlass__5x_cudnn", "fbgemm_gpu", "pytorch_flash", "cudax"),
        *("rocblas", "hipblaslt", "hipcub", "rocprim", "ck", "ck_tile", "magma", "cufft", "curand", "cusparse", "sycl"),
        *("transformer_engine", "oneapi", "dnnl", "nvfuser"),
    }
)
"""C++ namespaces of PyTorch and of device vendors: all names in them are public."""
LIBRARY_ROOTS = (
    frozenset(
        {"vllm", "sglang", "flashinfer", "tensorrt_llm", "deep_gemm", "flash", "fa3", "xformers", "mscclpp", "aiter"}
        | {function(name).split("::")[0] for row in OURS for name, _ in row.samples if "::" in function(name)}
    )
    - CPP_ROOTS
)
"""Namespaces of libraries that users modify: a name in them is kept only if all its words are known."""

_CPP_WORDS = frozenset(
    {
        *("void", "const", "int", "unsigned", "signed", "long", "short", "char", "bool", "float", "double", "true"),
        *("false", "nullptr", "nullptr_t", "decltype", "auto", "operator", "static", "volatile", "struct", "class"),
        *("enum", "typename", "template", "noexcept", "lambda", "instance", "u", "l", "ul", "type", "value", "half"),
        *("__half", "__half2", "half2", "__nv_bfloat16", "__nv_bfloat162", "__hip_bfloat16", "__bf16", "bfloat16"),
        *("__nv_fp8_e4m3", "__nv_fp8_e5m2", "float2", "float4", "int2", "int4", "uint2", "uint4", "uint8_t", "int8_t"),
        *("int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t", "size_t", "int8", "uint8", "__int128"),
        *("float8_e4m3fn", "float8_e5m2", "__global__", "__restrict__", "__pack__", "T", "Params", "Kernel"),
    }
)
"""Keywords of C++, its types and those of CUDA, as single words."""
AFTER = re.compile(r"(?:type|value|Params|Arguments|operator|Kernel|GemmKernel|Policy\d{0,4}|enum_type)\Z", re.ASCII)
"""Possible text after the end of template arguments (``Kernel<...>::Params``)."""
_ALONE = frozenset({"softmax_warp_forward", "softmax_warp_backward", "elementwise_kernel_with_index"})
"""Kernels of PyTorch without a named namespace."""

_BLAS = re.compile(
    r"^(?:nvjet|Cijk|(?:ampere|volta|turing|hopper|maxwell|pascal|blackwell|ada)_|sm\d+_|cutlass_|cudnn_(?:generated|infer"
    r"|train)_|igemm_|gem[mv]\w*_kernel|gemv|gemmk1|gemmSN|scal_kernel|splitK\w*|magma_|explicit_convolve|"
    r"implicit_convolve|nchwToNhwc|nhwcToNchw|cunn_|batched_transpose|cudnn|cublas|sgemm_|dot_kernel|reduce_1Block)"
)
"""Beginnings of kernel names of BLAS and DNN libraries that have no namespace."""

CALL = re.compile(
    r"(?:cu|cuda|hip|ze|sycl|ur|mtia|acl|musa|mu|roctx|nvtx)[A-Z][A-Za-z0-9]{1,80}(?:_v\d{1,2}|_pt[sd][sz]){0,2}\Z"
)
"""A call of a runtime or a driver, in the event classes that contain only such calls."""
COPIES = re.compile(
    r"(?:Memcpy|Memset)(?: (?:[HDPA]to[HDPA]|Unknown))?"
    r"(?: \((?:Device|Pageable|Pinned|Unified|Managed|Array|Unknown|Host)"
    r"(?: -> (?:Device|Pageable|Pinned|Unified|Managed|Array|Unknown|Host))?\))?\Z"
    r"|Copy(?:DeviceToHost|HostToDevice|DeviceToDevice|Device)\Z|FillBuffer\Z|__amd_rocclr_(?:copy|fill)Buffer(?:\.kd)?\Z"
)
OVERHEAD = frozenset(
    {
        *("Activity Buffer Request", "Buffer Flush", "Command Buffer Full", "Lazy Function Loading", "Instrumentation"),
        *("Resource", "Runtime Triggered Module Loading", "Event Sync", "Stream Sync", "Stream Wait Event", "INVALID"),
        *("Context Sync", "Device Sync", "Driver Compiler", "Unrecognized", "Activity Buffer Flush"),
        *("Memory Allocation", "Synchronization", "launch"),
    }
)
"""Kineto's names for CUPTI's own work and for the synchronisations that it recorded."""

OPTIMIZERS = frozenset(
    {
        *(
            "Adam",
            "AdamW",
            "SGD",
            "Adagrad",
            "Adadelta",
            "Adamax",
            "ASGD",
            "LBFGS",
            "NAdam",
            "RAdam",
            "RMSprop",
            "Rprop",
        ),
        *("SparseAdam", "Adafactor", "Muon", "ZeroRedundancyOptimizer", "FusedAdam", "FusedLAMB", "FusedSGD"),
    }
)

EXACT = frozenset(
    {
        *("record_param_comms", "DistributedDataParallel.forward", "DataParallel.forward", "CompiledFunction"),
        *("CompiledFunctionBackward", "TorchDynamo Cache Lookup", "Pregraph bytecode", "PythonDispatchMode"),
        *("AOTDispatcher Runtime Wrapper Prologue", "PythonSubclass", "<backward op>", "<forward op>", "detach"),
        *("detach_", "torch::autograd::AccumulateGrad", "torch::autograd::GraphRoot", "torch::autograd::CopySlices"),
        *("torch::autograd::Error", "torch::autograd::DelayedError", "torch::distributed::reducer::mul_out"),
        *(
            "torch.distributed.ddp.reducer::copy_bucket_to_grad",
            "torch.distributed.ddp.reducer::search_unused_parameters",
        ),
        *("torch::jit::(anonymous namespace)::DifferentiableGraphBackward", "[memory]", "dynamo", "gc", "Work::wait"),
        *("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "GradScaler.step", "GradScaler.unscale_"),
        *("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "PyTorch Profiler", "wait_tensor"),
    }
)
"""Host events with names given by PyTorch itself."""

DYNAMO = frozenset(_listed("dynamo_phases.txt"))
"""Phases of torch.compile, as named by its own timers."""

_KERNEL_WORDS = frozenset({"triton", "poi", "red", "per", "tem", "spl", "for", "mix", "fused", "persistent"})
"""Words that Inductor adds to those of the operators that a kernel fuses."""
_LIBRARY_WORDS = frozenset({"ring", "tree", "ll", "nvls", "collnet", "direct", "chain", "pat", "simple", "min", "max"})


def words_of(name: str) -> list[str]:
    """Return the words of an identifier, lower case: ``addmm``, ``backward`` of ``AddmmBackward0``."""
    return [word.lower() for word in _WORD.findall(name)]


@functools.cache
def _torch_words() -> frozenset[str]:
    return frozenset(_listed("torch_words.txt"))


@functools.cache
def _blas_words() -> frozenset[str]:
    return frozenset(_listed("blas_words.txt"))


@functools.cache
def _library_words() -> frozenset[str]:
    samples = [name for row in OURS for name, _ in row.samples]
    return _LIBRARY_WORDS | frozenset(word for name in samples for word in words_of(name))


def known_words(name: str) -> bool:
    """Return whether an identifier consists only of words of PyTorch's operators and of words by which Inductor joins
    them."""
    return all(word in _torch_words() or word in _KERNEL_WORDS for word in words_of(name))


def of_library(path: list[str]) -> bool:
    """Return whether a name in a namespace of a library consists of words of the table of libraries and of PyTorch."""
    known = _library_words() | _torch_words()
    return all(word in known for part in path for word in words_of(part))


def is_library_kernel(name: str) -> bool:
    """Return whether an identifier without a namespace is a kernel or a type of a public library."""
    if name in _CPP_WORDS or name in _ALONE:
        return True
    if name.startswith("triton_"):
        return known_words(name)
    words = words_of(name)
    if is_communication(name) or name.startswith(("nccl", "rccl", "nvshmem")):
        return all(word in _library_words() or len(word) < 3 for word in words)
    return _BLAS.match(name) is not None and all(word in _blas_words() or len(word) <= 3 for word in words)

"""What changes of a job would gain. Expected numbers are worked out by hand from small jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis.gains import calls as gains_calls
from rankscope.analysis.gains.beside_calls import beside_calls
from rankscope.analysis.gains.changes import find_changes
from rankscope.analysis.gains.context_parallel import uneven_attention
from rankscope.analysis.gains.doubled_batch import doubled_batch
from rankscope.analysis.gains.experts import expert_parallel
from rankscope.analysis.gains.links import slow_link
from rankscope.analysis.gains.parallel_groups import is_context, is_tensor
from rankscope.analysis.gains.plain_attention import plain_attention
from rankscope.analysis.gains.small_calls import small_calls
from rankscope.analysis.gains.tensor_parallel import tensor_parallel
from rankscope.analysis.gains.unaligned import unaligned_product
from rankscope.analysis.operators.chains import costliest_chain
from rankscope.analysis.operators.precision import precision_of
from rankscope.analysis.windows.analyse import WindowResult, analyse_window
from rankscope.records.changes import Changes
from rankscope.records.rows import RankSummary
from rankscope.trace.files.load import load_traces
from rankscope.trace.kineto.build import read_trace

from .conftest import DATA
from .test_operators import event
from .worlds import MS, US, Fault, Item, Mesh, simulate

BF16 = "nvjet_tst_128x128_64x4_1x2_h_bz_coopA_NNN"
H100 = "NVIDIA H100 80GB HBM3"
Kernel = tuple[str, str, str, float]
"""Operator, its Input Dims, kernel, length in us."""


def alone(tmp_path: Path, kernels: list[Kernel], device: str = H100) -> WindowResult:
    """The window of one rank whose kernels run one after the other from 1 ms on, long after their launches."""
    rows, at = [event("ProfilerStep#1", "user_annotation", 0.0, 900.0)], 1000.0
    for number, (operator, shapes, kernel, length) in enumerate(kernels, 1):
        key = {"External id": number}
        rows += [
            event(operator, "cpu_op", 5.0 * number, 4.0, **key, **{"Input Dims": json.loads(shapes)}),
            event("cudaLaunchKernel", "cuda_runtime", 5.0 * number + 1, 1.0, correlation=number, **key),
            event(kernel, "kernel", at, length, 7, stream=7, correlation=number, **key),
        ]
        at += length
    path = tmp_path / "rank_0.json"
    about = {"deviceProperties": [{"id": 0, "name": device}], "baseTimeNanoseconds": 0}
    path.write_text(json.dumps({**about, "traceEvents": rows}))
    return analyse_window([read_trace(path)])


ALIGNED = ("aten::mm", "[[800, 1000], [1000, 1000]]", BF16, 16.0)
"""1.6e9 operations in 16 us: 100 a ns."""
ODD = ("aten::mm", "[[1600, 1000], [1000, 1001]]", BF16, 100.0)
"""3.2032e9 operations, more for each element, in 100 us: 32 a ns. Padded to 1008 they are 3.2256e9: 32.256 us."""


def test_products_of_odd_sizes_reach_the_rate_of_smaller_aligned_ones(tmp_path: Path) -> None:
    """Four of them would be 67.744 us shorter each. Another aligned product reaches 80 a ns: the median is then 90."""
    window = alone(tmp_path, [ALIGNED, ODD, ODD, ODD, ODD])
    found = unaligned_product([window])
    assert found is not None
    assert (found.operator, found.sizes, found.pad) == ("aten::mm", "[1600, 1000] x [1000, 1001]", {1001: 1008})
    assert (found.tflops, found.aligned_tflops) == (pytest.approx(32.032), pytest.approx(100.0))
    assert (found.low_ms, found.high_ms) == (pytest.approx(0.270976), pytest.approx(0.270976))
    slower = ("aten::addmm", "[[800], [800, 800], [800, 1000]]", BF16, 16.0)  # 1.28e9 operations
    found = unaligned_product([alone(tmp_path, [ALIGNED, slower, ODD])])
    assert found is not None
    assert (found.low_ms, found.high_ms) == (pytest.approx(0.1 - 0.03584), pytest.approx(0.067744))


@pytest.mark.parametrize(
    "kernels",
    [
        [ALIGNED, (ODD[0], "[[1600, 1000], [1000, 1000]]", *ODD[2:])],  # slow for another reason
        [(*ALIGNED[:2], "cutlass_80_tensorop_s1688gemm_128x128", 16.0), ODD],  # another precision
        [("aten::mm", "[[8000, 1000], [1000, 1000]]", BF16, 160.0), ODD],  # larger, so no proof
        [ALIGNED, ("aten::mm", "[[80000, 20], [20, 1001]]", BF16, 100.0)],  # bound by memory
        [ALIGNED, (*ODD[:3], 30.0)],  # fast already
        [ODD],
    ],
)
def test_products_that_no_aligned_one_shows_to_be_slow(tmp_path: Path, kernels: list[Kernel]) -> None:
    assert unaligned_product([alone(tmp_path, kernels)]) is None


@pytest.mark.parametrize(
    ("kernel", "precision"),
    [
        (BF16, "bf16"),
        ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_nn_align2", "bf16"),
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1", "bf16"),  # seen with odd sizes on an H200
        ("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT", "bf16"),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_nt", "fp16"),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT", "fp16"),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", "tf32"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128", "fp8"),
        ("ampere_sgemm_128x64_tn", ""),
    ],
)
def test_the_precision_of_a_kernel(kernel: str, precision: str) -> None:
    assert precision_of(kernel) == precision


def test_measured_gains_are_within_the_predicted_ranges() -> None:
    """tests/data/knobs/README.md has the steps with the knobs turned: 12.86 and 17.03 ms less, of 46.22."""
    windows = [analyse_window(load_traces([DATA / "knobs" / "plain_attention"], workers=1, cache=False).traces)]
    product, attention = unaligned_product(windows), plain_attention(windows)
    assert product is not None
    assert (product.sizes, product.pad) == ("[8192, 768] x [768, 50257]", {50257: 50304})
    assert product.low_ms < 12.86 < product.high_ms < 1.05 * 12.86
    assert attention is not None
    assert attention.low_ms < 17.03 < attention.high_ms < 1.05 * 17.03


SCORES = "[2, 4, 128, 256]"
ATTENTION: list[Kernel] = [
    ("aten::bmm", "[[8, 128, 64], [8, 64, 256]]", "gemm", 100.0),
    ("aten::add", f"[{SCORES}, [128, 256]]", "masked", 50.0),
    ("aten::_softmax", f"[{SCORES}]", "softmax", 100.0),
    ("aten::bmm", "[[8, 128, 256], [8, 256, 64]]", "gemm", 100.0),
    ("aten::copy_", "[[2, 4, 128, 64], [2, 4, 128, 64]]", "copy", 30.0),
    ("aten::add", "[[8, 128, 64], [8, 128, 64]]", "residual", 70.0),
]
"""Products of 2 x 8 x 128 x 64 x 256 = 33.6e6 operations."""


def test_attention_in_separate_kernels(tmp_path: Path) -> None:
    """Six kernels, of which the last has nothing to do with scores. All others go in the best case; in the worst the
    copy of queries stays, and the products take 33.6e6 x 7/6 / (0.25 x 989e3) = 158 ns each."""
    found = plain_attention([alone(tmp_path, ATTENTION)])
    assert found is not None
    assert (found.kernels, found.ms, found.fallback) == (4.0, pytest.approx(0.35), False)
    assert found.high_ms == pytest.approx(0.38)
    assert found.low_ms == pytest.approx(0.35 - 2 * 158e-6, abs=2e-6)
    unknown = plain_attention([alone(tmp_path, ATTENTION, device="Chip")])
    assert unknown is not None
    assert (unknown.low_ms, unknown.high_ms) == (pytest.approx(0.15), pytest.approx(0.38))


def test_a_softmax_without_products_of_its_scores_is_no_attention(tmp_path: Path) -> None:
    router = ("aten::_softmax", "[[8, 128, 64]]", "softmax", 100.0)
    products = [ATTENTION[0], ("aten::mm", "[[8, 8], [8, 8]]", "gemm", 9.0)]
    assert plain_attention([alone(tmp_path, [router, *products])]) is None


def test_kernels_beside_calls_of_recorded_jobs(recorded: Callable[[str], Any]) -> None:
    """67 aten::mm took 8.7 ms on the rank that ran them beside a waiting kernel of NCCL and 5.5 on the other (1.3 to
    1.6 times as long); the job waits for its hosts, so nothing is gained. In the GPU-bound job it is."""
    found = beside_calls([analyse_window(recorded("ddp_healthy").traces)])
    assert found is not None
    assert 1.0 < found.ratio - found.error < 1.3 < found.ratio + found.error < 1.6
    assert (found.operator, found.high_ms) == ("aten::mm", pytest.approx(0.0, abs=0.01))
    busy = beside_calls([analyse_window(recorded("fsdp2_gpu_bound").traces)])
    assert busy is not None
    assert busy.high_ms > 1.0
    assert beside_calls([analyse_window(recorded("gloo_ddp_none").traces)]) is None, "gloo does not run on the device"


def beside_trace(folder: Path, rank: int, slower: float) -> Any:
    """Three steps of 5 ms. In each, three kinds of kernels run three times for 100 us alone, and three times ``slower``
    as long beside an all-reduce; then the host waits for the device."""
    rows: list[Any] = []
    number = 0
    call = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float"}
    group = {"Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
    for step in range(3):
        at = 5000.0 * step
        rows.append(event(f"ProfilerStep#{step}", "user_annotation", at, 4990.0))
        begin = at + 1000.0
        kinds = (1, 2, 3) * 3
        works = [*((kind, 100.0) for kind in kinds), (0, 0.0), *((kind, slower) for kind in kinds)]
        for place, (kind, length) in enumerate(works):
            number += 1
            launch, key = at + 10.0 * place, {"External id": number}
            shapes = {"Input Dims": [[64 * kind, 64], [64, 64]]} if kind else {}
            operator = "aten::mm" if kind else "c10d::allreduce_"
            rows += [
                event(operator, "cpu_op", launch, 8.0, **key, **shapes),
                event("cudaLaunchKernel", "cuda_runtime", launch + 1, 2.0, correlation=number, **key),
            ]
            if kind:
                rows.append(event(f"gemm{kind}", "kernel", begin, length, 7, stream=7, correlation=number, **key))
                begin += length
            else:
                nccl = {**key, **call, **group, "stream": 20, "correlation": number}
                rows.append(event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel", begin, 2000.0, 20, **nccl))
        wait = begin - at - 240.0
        rows.append(event("cudaDeviceSynchronize", "cuda_runtime", at + 250.0, wait, correlation=9000 + step))
    path = folder / f"rank_{rank}.json"
    about = {"distributedInfo": {"rank": rank, "world_size": 2, "backend": "nccl"}, "baseTimeNanoseconds": 0}
    path.write_text(json.dumps({**about, "traceEvents": rows}))
    return read_trace(path)


def test_kernels_beside_calls(tmp_path: Path) -> None:
    found = beside_calls([analyse_window([beside_trace(tmp_path, rank, 140.0) for rank in (0, 1)])])
    assert found is not None
    assert (found.ratio, found.error, found.operator) == (pytest.approx(1.4), pytest.approx(0.0), "aten::mm")
    assert found.high_ms >= 0.0
    assert beside_calls([analyse_window([beside_trace(tmp_path, rank, 100.0) for rank in (0, 1)])]) is None


def rows(size: int, hosts: int = 1) -> list[RankSummary]:
    return [RankSummary(rank=r, host=f"node{r * hosts // size}", device=H100) for r in range(size)]


def window_of(program: list[Item], mesh: Mesh, **more: Any) -> WindowResult:
    return analyse_window(simulate(program, mesh, steps=6, **more))


SYNC = Item("sync")
LONG = Item("call", device=4 * MS, elements=100_000_000, blocking=True)
"""All-reduce of 400 MB between two ranks in 4 ms: 100 GB/s. At NVLink 4's 450 it takes 0.889 ms, at 70 % of it 1.27."""


def test_calls_far_below_the_link_between_devices() -> None:
    window = window_of([Item("work", device=MS), LONG, SYNC], Mesh(dp=2))
    found = slow_link([window], rows(2))
    assert found is not None
    assert (found.kind, found.link, found.link_gb_s, found.ranks) == ("all_reduce", "NVLink 4", 450.0, [0, 1])
    assert found.best_gb_s == pytest.approx(100.0, rel=0.01)
    # the first step gains, too: a call is the end of each step
    assert (found.low_ms, found.high_ms) == (pytest.approx(4 - 1.27, abs=0.02), pytest.approx(4 - 0.889, abs=0.02))


@pytest.mark.parametrize(
    ("call", "ranks"),
    [
        (replace(LONG, device=MS), rows(2)),  # 400 GB/s
        (replace(LONG, device=100 * US, elements=1_000_000), rows(2)),  # small: bound by latency
        (LONG, rows(2, hosts=2)),  # the link between hosts is not known
        (LONG, [RankSummary(rank=r, host="a", device="Chip") for r in range(2)]),
    ],
)
def test_links_that_are_not_accused(call: Item, ranks: list[RankSummary]) -> None:
    assert slow_link([window_of([Item("work", device=MS), call, SYNC], Mesh(dp=2))], ranks) is None


def small(us: int, elements: int) -> Item:
    return Item("call", host=10 * US, device=us * US, elements=elements, blocking=True)


SMALL = [small(50 + n, 25_000 * n) for n in range(1, 5)]
"""50 us and 1 us for each 100 kB: four calls in a row, 210 us. As one they save three quarters of 4 x 50 us."""


def test_calls_whose_time_does_not_depend_on_their_size() -> None:
    window = window_of([Item("work", device=MS), *SMALL, SYNC], Mesh(dp=2))
    (found,) = small_calls([window])
    assert (found.kind, found.calls, found.ranks) == ("all_reduce", 4.0, [0, 1])
    assert (found.fixed_us, found.mean_us) == (pytest.approx(51, abs=2), pytest.approx(53.5, abs=1.5))
    assert found.high_ms == pytest.approx(0.15, abs=0.01)


@pytest.mark.parametrize(
    "calls",
    [
        [small(100 * n, 25_000 * n) for n in range(1, 5)],  # the time grows with the size
        [small(50, 25_000)] * 4,  # one size: nothing can be told
        [part for call in SMALL for part in (call, Item("work", device=100 * US))],  # each is needed before the next
    ],
)
def test_calls_that_are_not_to_be_merged(calls: list[Item]) -> None:
    assert small_calls([window_of([Item("work", device=MS), *calls, SYNC], Mesh(dp=2))]) == []


def test_the_calls_of_a_window_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[WindowResult] = []
    sizes = gains_calls.sizes_of_calls
    monkeypatch.setattr(gains_calls, "sizes_of_calls", lambda window: measured.append(window) or sizes(window))
    windows = [window_of([Item("work", device=MS), *SMALL, SYNC], Mesh(dp=2)) for _ in range(2)]
    assert small_calls(windows)
    assert slow_link(windows, rows(2)) is None
    assert [id(window) for window in measured] == [id(window) for window in windows]


def test_twice_the_batch() -> None:
    """A step of 1 ms of work and 1 ms of transfers, with 0.02 ms of host around it. Two steps are one of 3 ms: half a
    millisecond less for each. A job with pipeline stages or without a wrapper is left out."""
    window = window_of([Item("work", device=MS), replace(LONG, device=MS), SYNC], Mesh(dp=2))
    step = (window.step_ns or 0.0) / 1e6
    found = doubled_batch([window], step, ["ddp"])
    assert found is not None
    assert found.twice_ms == pytest.approx(step + 1.0, abs=0.02)
    assert found.high_ms == pytest.approx((step - 1.0) / 2, abs=0.01)
    assert found.low_ms == pytest.approx(0.5, abs=0.02)
    assert doubled_batch([window], step, []) is None
    grid = window_of([Item("work", device=MS), replace(LONG, axis="tp"), LONG, SYNC], Mesh(dp=2, tp=2))
    assert doubled_batch([grid], 10.0, ["ddp"]) is None


def test_tensor_parallel_groups() -> None:
    """1 ms of work, 0.4 ms of a tensor parallel call, 0.1 ms of gradients. With groups of one rank there is no such
    call and twice the gradients: 0.4 - 0.1 = 0.3 ms less. It moves 40 MB, which NVLink 4 does in 0.089 ms."""
    shard = Item("call", device=400 * US, axis="tp", elements=10_000_000, blocking=True)
    program = [Item("work", device=MS), shard, Item("call", device=100 * US, axis="dp", blocking=True), SYNC]
    window = window_of(program, Mesh(dp=2, tp=2))
    found = tensor_parallel([window], rows(4))
    assert found is not None
    assert (found.size, found.ranks, found.hosts, found.within) == (2, [0, 1], 1, None)
    assert found.high_ms == pytest.approx(0.4, abs=0.01)
    assert found.halved_ms == pytest.approx(0.3, abs=0.01)
    assert found.others_ms == pytest.approx(0.1, abs=0.01)
    apart = tensor_parallel([window], rows(4, hosts=4))
    assert apart is not None
    assert apart.hosts == 2
    assert apart.within is not None
    assert apart.within.high_ms == pytest.approx(0.4 - 0.089, abs=0.01)
    assert apart.within.low_ms == pytest.approx(0.4 - 0.222, abs=0.01)
    assert tensor_parallel([window_of(program[2:], Mesh(dp=2))], rows(2)) is None


def test_names_of_groups() -> None:
    tensor = {"mesh_tp", "tp", "tp:0", "TENSOR_MODEL_PARALLEL_GROUP"}
    context = {"mesh_cp", "CONTEXT_PARALLEL_GROUP"}
    others = {"default_pg", "", "mesh_dp", "TENSOR_AND_DATA_PARALLEL_GROUP", "dp_cp", "http", "EXPERT_TENSOR_PARALLEL"}
    every = tensor | context | others
    assert ({n for n in every if is_tensor(n)}, {n for n in every if is_context(n)}) == (tensor, context)


def cp_window(extra: int) -> WindowResult:
    """Two ranks with 1 ms of attention each, and ``extra`` more on rank 1; their group is named cp."""
    attention = Item("work", device=MS, name="flash_fwd_kernel")
    traces = simulate(
        [attention, Item("call", device=50 * US, blocking=True), SYNC],
        Mesh(dp=2),
        steps=6,
        faults=[Fault(1, replace(attention, device=extra))] if extra else [],
    )
    for trace in traces:
        trace.groups = [replace(group, description="mesh_cp") for group in trace.groups]
    return analyse_window(traces)


def test_ranks_with_more_of_a_causal_mask() -> None:
    """1 and 2 ms of attention: 1.5 on both is half a millisecond less, half of the way there a quarter."""
    found = uneven_attention([cp_window(MS)])
    assert found is not None
    assert (found.group, found.late) == ([0, 1], [1])
    assert (found.longest_ms, found.mean_ms) == (pytest.approx(2.0), pytest.approx(1.5))
    assert (found.low_ms, found.high_ms) == (pytest.approx(0.25, abs=0.01), pytest.approx(0.5, abs=0.01))
    assert uneven_attention([cp_window(0)]) is None


def test_experts_with_unequal_work() -> None:
    """Two ranks exchange tokens for 0.3 ms, compute 1 ms, on rank 1 0.4 more, exchange again and reduce gradients for
    0.1 ms. Equal work is 1.2 on both: 0.2 less. Without exchanges 0.6 less, but for the 0.02 ms that the host takes
    before a launch and had hidden behind the first."""
    exchange = Item("call", device=300 * US, kind="all_to_allv", blocking=True)
    work, reduce = Item("work", device=MS), Item("call", device=100 * US, blocking=True)
    faults = [Fault(1, replace(work, device=400 * US), before=2)]
    window = window_of([exchange, work, exchange, reduce, SYNC], Mesh(dp=2), faults=faults)
    found = expert_parallel([window])
    assert found is not None
    assert found.high_ms == pytest.approx(0.6 - 0.02, abs=0.01)
    assert found.others_ms == pytest.approx(0.1, abs=0.02)
    assert found.balanced_ms == pytest.approx(0.2, abs=0.02)
    assert expert_parallel([window_of([work, reduce, SYNC], Mesh(dp=2))]) is None


def test_the_costliest_chain_of_element_wise_kernels(tmp_path: Path) -> None:
    """add and gelu twice between products, 60 us each time; a single mul of 100 us is no chain."""
    pair: list[Kernel] = [("aten::add", "[[8], [8]]", "add", 20.0), ("aten::gelu", "[[8]]", "gelu", 40.0)]
    window = alone(tmp_path, [*pair, ALIGNED, *pair, ALIGNED, ("aten::mul", "[[8], [8]]", "mul", 100.0)])
    found = costliest_chain(window.views)
    assert found is not None
    assert (found.operators, found.count, found.ms) == (["aten::add", "aten::gelu"], 2.0, pytest.approx(0.12))
    assert costliest_chain([]) is None


def test_a_job_without_any_of_these() -> None:
    window = window_of([Item("work", device=MS), replace(LONG, device=MS), SYNC], Mesh(dp=2))
    assert find_changes([window], rows(2), 2.0, []) == Changes()

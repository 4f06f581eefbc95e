"""The main job on two real GPUs: windows, gathering, and abnormal exits. Needs two CUDA devices."""

from __future__ import annotations

import gzip
import json
import re
import time
from pathlib import Path

import pytest
import torch

from support.launching import RANKSCOPE, TORCHRUN, flags_of

GPT = Path(__file__).parents[2] / "benchmarks" / "gpt.py"

CONTEXTS = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
print(dist.get_rank(), [torch._C._cuda_hasPrimaryContext(index) for index in (0, 1)], flush=True)
dist.destroy_process_group()
"""

PROFILES_ITSELF = """
import os, random, time, torch, torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
chance, begun, over = random.Random(rank), time.monotonic(), torch.zeros(1, device="cuda")
own, lasts, kernels = None, [0.3, 8.0, *[0.3] * 100], []
while not over.item():
    if own is None and chance.random() < 0.01:
        own = torch.profiler.profile()
        own.start()
        ends = time.monotonic() + lasts.pop(0)
    model(torch.randn(8, 512, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.005)
    if own is not None and time.monotonic() > ends:
        own.stop()
        kernels.append(sum(e.device_type == torch.autograd.DeviceType.CUDA for e in own.events()))
        own = None
    over.fill_(float(time.monotonic() - begun > 40))
    dist.all_reduce(over, op=dist.ReduceOp.MAX)
if own is not None:
    own.stop()
print(f"sessions {len(kernels)}, fewest kernels {min(kernels)}", flush=True)
del model
dist.destroy_process_group()
"""

GRAPHS = """
import os, time, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(8, 256, device="cuda")

def backward():
    optimizer.zero_grad(set_to_none=True)
    model(batch).pow(2).mean().backward()

def reduce():
    for weight in model.parameters():
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)

def step():
    backward()
    optimizer.step()

side = torch.cuda.Stream()
with torch.cuda.stream(side):
    step()
    reduce()
torch.cuda.synchronize()
kept = torch.cuda.CUDAGraph()
with torch.cuda.graph(kept):
    backward()
    reduce()
    optimizer.step()
over, begun = torch.zeros(1, device="cuda"), time.monotonic()
for number in range(1, 1 << 30):
    # One graph goes through all windows; those captured again all the time meet every moment of a window.
    kept.replay()
    if number % 3 == 1:
        whole, halves = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(whole):
            step()
        with torch.cuda.graph(halves):
            backward()
    for _ in range(2):
        whole.replay()
    halves.replay()
    reduce()
    optimizer.step()
    over.fill_(float(time.monotonic() - begun > 35))
    dist.all_reduce(over, op=dist.ReduceOp.MAX)
    if over.item():
        break
print(f"steps {1 + 4 * number}", flush=True)
del kept, whole, halves, model
dist.destroy_process_group()
"""

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


@pytest.fixture
def gpt(start, finish, tmp_path):
    def gpt(*words, launcher=RANKSCOPE, flags=()):
        ours = ["-S", f"run.dir={tmp_path / 'RUN'}", *flags] if launcher is RANKSCOPE else []
        return finish(start([*launcher, "--nproc-per-node", 2, *ours, GPT, *words]))

    return gpt


@pytest.fixture
def through_windows(start, finish, tmp_path):
    """A script through windows every so many steps, within no budget; the run and the records of all windows."""

    def through_windows(source, backend, every):
        script = tmp_path / "script.py"
        script.write_text(source)
        settings = [f"run.dir={tmp_path / 'RUN'}", f"capture.backend={backend}", "analysis.enabled=false"]
        settings += ["schedule.skip_first=5", f"schedule.every={every}"]
        settings += ["budget.step_pct=100", "budget.megabytes=100000"]
        done = finish(start([*RANKSCOPE, "--nproc-per-node", 2, *flags_of(*settings), script]))
        assert done.code == 0, done.stderr
        return done, [record for window in done.manifest.windows for record in window.records]

    return through_windows


@pytest.mark.parametrize("parallel", ["ddp", "fsdp2"])
def test_both_ranks_record_the_same_steps_with_their_kernels(gpt, parallel):
    done = gpt("--parallel", parallel)
    assert done.code == 0, done.stderr
    for rank, record in enumerate(done.records()):
        assert (record.status, record.notes, record.agreed, record.backend) == ("ok", [], True, "nccl")
        assert (record.first_step, record.last_step) == (13, 18)
        with gzip.open(done.run.trace(0, 0, rank)) as stream:
            trace = json.load(stream)
        kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
        assert any("nccl" in e["name"].lower() for e in kernels)
        assert trace["distributedInfo"]["rank"] == rank
    bare = gpt("--parallel", parallel, launcher=TORCHRUN)
    losses = [float(re.search(r"loss (\S+)", d.stdout)[1]) for d in (done, bare)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)  # atomics on the GPU: two bare runs differ as much


def test_a_crash_beside_a_hanging_collective_does_not_outlast_torchrun(gpt):
    # GIVEN rank 1 fails inside the window while rank 0 waits for it in NCCL
    began = time.monotonic()
    theirs = gpt("--fault", "crash", launcher=TORCHRUN)
    bare = time.monotonic() - began
    began = time.monotonic()
    ours = gpt("--fault", "crash")
    assert ours.code == theirs.code == 1
    assert time.monotonic() - began < bare + 60
    assert ours.records()[1].status == "partial"
    assert "planted failure" in ours.records()[1].reason


def test_windows_come_again_after_detaching_from_the_device(start, finish, tmp_path):
    settings = ["schedule.repeat=3", "schedule.active=3", "capture.backend=inline", f"run.dir={tmp_path / 'RUN'}"]
    done = finish(start([*RANKSCOPE, "--nproc-per-node", 2, *flags_of(*settings), GPT, "--steps", 45]))
    assert done.code == 0, done.stderr
    for window in range(3):
        assert [(r.status, r.notes) for r in done.records(window=window)] == [("ok", []), ("ok", [])]


def test_no_rank_touches_the_device_of_another(start, finish, tmp_path):
    script = tmp_path / "contexts.py"
    script.write_text(CONTEXTS)
    done = finish(start([*RANKSCOPE, "--nproc-per-node", 2, "-S", f"run.dir={tmp_path / 'RUN'}", script]))
    assert [record.status for record in done.records()] == ["ok", "ok"]
    assert sorted(done.stdout.splitlines()) == ["0 [True, False]", "1 [False, True]"]


def test_every_kernel_of_a_device_that_lags_is_recorded(gpt):
    # GIVEN rank 0 waits for rank 1 on its device, which so falls steps behind its host
    done = gpt("--steps", 200, "--fault", "input_stall", flags=["-S", "schedule.repeat=2"])
    assert done.code == 0, done.stderr
    second = done.records(window=1)
    assert [(r.status, r.notes, r.capture) for r in second] == [("ok", [], "inline")] * 2
    for rank in (0, 1):
        with gzip.open(done.run.trace(0, 1, rank)) as stream:
            assert launches_without_kernel(json.load(stream)["traceEvents"]) == 0
    assert (done.report.verdict.kind, done.report.verdict.ranks) == ("straggler", [1])


def test_the_scripts_own_profiler_and_ours_share_the_device(through_windows):
    # GIVEN a script that profiles itself at random moments, once for longer than 7 s, between our windows
    done, records = through_windows(PROFILES_ITSELF, "auto", every=40)
    sessions, fewest = zip(*re.findall(r"sessions (\d+), fewest kernels (\d+)", done.stdout), strict=True)
    assert min(map(int, sessions)) > 1
    assert min(map(int, fewest)) > 20
    wrong = [r for r in records if r.status != "ok" and "own torch.profiler" not in (r.reason or "")]
    assert not wrong
    assert [(r.capture, r.notes) for r in records if r.status == "ok"].count(("inline", [])) >= 4


def test_cuda_graphs_are_captured_and_replayed_through_many_windows(through_windows):
    # GIVEN steps captured whole, NCCL included, whose replays are steps, and steps with their backward captured
    done, records = through_windows(GRAPHS, "auto", every=50)
    steps = {int(number) for number in re.findall(r"steps (\d+)", done.stdout)}
    assert {life.steps_counted for life in done.manifest.lives} == steps
    assert {r.reason for r in records if r.status != "ok" and "the job ended" not in (r.reason or "")} == set()
    whole = [r for r in records if (r.status, r.capture, r.notes) == ("ok", "inline", [])]
    assert len(whole) >= 4
    for record in whole:
        with gzip.open(done.run.trace(0, record.window, record.rank)) as stream:
            events = json.load(stream)["traceEvents"]
        replays = [e for e in events if "GraphLaunch" in e["name"]]
        assert len(replays) >= record.last_step - record.first_step
        assert any(e.get("cat") == "kernel" and e["args"].get("graph id") for e in events)


def launches_without_kernel(events):
    """Of the launches inside the marked steps."""
    steps = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")]
    begin, end = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
    calls = [e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver") and "LaunchKernel" in e["name"]]
    launched = {e["args"]["correlation"] for e in calls if begin <= e["ts"] < end}
    return len(launched - {e["args"]["correlation"] for e in events if e.get("cat") == "kernel"})

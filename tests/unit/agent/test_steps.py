"""Counting of steps. The expected numbers follow from the definitions in agent/steps/counter.py."""

from __future__ import annotations

import gc
import inspect
import threading
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rankscope import config
from rankscope.agent.signals import base
from rankscope.agent.signals.table import OURS
from rankscope.agent.steps.counter import FEW, PATIENCE, StepCounter
from rankscope.agent.steps.detectors import install_detectors
from rankscope.config import StepsConfig, step_sources


@pytest.fixture(autouse=True)
def _torch_as_it_was(monkeypatch):
    """What the detectors patch is put back, and optimizers of other tests are none of this one's."""
    monkeypatch.setattr("rankscope.agent.signals.optimizer._subclasses", lambda _kind: [])
    for owner, name in (
        (torch.nn.Module, "__call__"),
        (torch.autograd, "backward"),
        (torch.optim.Optimizer, "__init__"),
        (torch.optim.Optimizer, "profile_hook_step"),
        (torch.amp.GradScaler, "update"),
        (torch.nn.parallel.DistributedDataParallel, "_pre_forward"),
        (torch.utils.data.dataloader._BaseDataLoaderIter, "__next__"),
    ):
        monkeypatch.setattr(owner, name, inspect.getattr_static(owner, name))


class Thing:
    """Stands for an optimizer; only its identity matters."""


def counted(events: list[str], source: str = "auto") -> list[int]:
    seen: list[int] = []
    counter = StepCounter(seen.append, source)
    for event in events:
        counter.signal(event)
    return seen


def test_one_optimizer_counts_each_step():
    counter, optimizer = StepCounter(lambda completed: None), Thing()
    for _ in range(5):
        counter.optimizer_stepped(optimizer)
    assert (counter.completed, counter.source) == (5, "optimizer")


def test_of_several_optimizers_the_first_counts():
    # GIVEN a GAN: generator and discriminator step once a batch, and an optimizer-in-backward with 26 optimizers
    counter, optimizers = StepCounter(lambda completed: None), [Thing() for _ in range(26)]
    for _ in range(5):
        for optimizer in optimizers:
            counter.optimizer_stepped(optimizer)
    # THEN 5 steps, not 130
    assert counter.completed == 5


def test_an_optimizer_that_is_gone_or_idle_gives_way():
    counter, first, second = StepCounter(lambda completed: None), Thing(), Thing()
    counter.optimizer_stepped(first)
    for _ in range(PATIENCE + 3):
        counter.optimizer_stepped(second)
    # PATIENCE steps of the second without one of the first show that the first is idle, the next three count
    assert counter.completed == 1 + 3
    del second
    counter.optimizer_stepped(third := Thing())
    assert counter.completed == 1 + 3 + 1
    del third


def test_two_steps_for_one_batch_are_one():
    counter, optimizer = StepCounter(lambda completed: None), Thing()
    for _ in range(4):
        counter.root_forward()
        counter.optimizer_stepped(optimizer)
        counter.optimizer_stepped(optimizer)
    assert counter.completed == 4


def test_forwards_that_vanish_into_a_compiled_region_do_not_stop_the_count():
    counter, optimizer = StepCounter(lambda completed: None), Thing()
    counter.root_forward()
    for _ in range(PATIENCE + 10):
        counter.optimizer_stepped(optimizer)
    # of 26 steps the first counts, the next PATIENCE - 1 = 15 look like repeats of it, the other 10 count
    assert counter.completed == 1 + 10


def test_weak_signals_count_only_after_patience():
    assert counted(["input"] * (FEW - 1)) == []
    assert counted(["input"] * (FEW + 1)) == [FEW, FEW + 1]


@pytest.mark.parametrize(("better", "patience"), [("backward", 16), ("optimizer", 64), ("forward", 2)])
def test_what_is_trusted_less_waits_for_what_will_come(better, patience):
    # GIVEN a data loader, and a root forward that announces its backward, or an optimizer that was made but not stepped
    seen: list[int] = []
    counter = StepCounter(seen.append)
    counter.expect(better)
    for _ in range(patience + 1):
        counter.signal("input")
    # THEN its items count from the 16th, from the 64th, or from the 2nd where what will come is trusted less
    assert seen == [patience, patience + 1]


def test_a_better_signal_takes_over():
    seen: list[int] = []
    counter = StepCounter(seen.append)
    for event in ["forward", "forward", "profiler", "forward", "user", "profiler"]:
        counter.signal(event)
    assert (seen, counter.changes, counter.source, counter.trust) == ([2, 1, 1], 2, "user", "certain")


def test_signals_of_two_groups_of_processes_count_from_one():
    # GIVEN two steps before there was a process group
    seen: list[int] = []
    counter = StepCounter(seen.append)
    for _ in range(2):
        counter.signal("user")
    counter.signal("user")
    counter.restart()  # the third is the first in it
    counter.signal("user")
    assert seen == [1, 2, 3, 2]


def test_a_fixed_source_ignores_the_others():
    assert counted(["optimizer", "input", "optimizer", "input"], source="input") == [1, 2]


def test_real_optimizers_nest_and_keep_their_results(monkeypatch):
    # GIVEN the detectors on a subclass that calls super().step(), the usual over-count
    monkeypatch.setattr(torch.optim.Optimizer, "profile_hook_step", torch.optim.Optimizer.profile_hook_step)
    counter = StepCounter(lambda completed: None)
    install_detectors(counter, lambda ns: None, lambda: None)

    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            return "mine"

    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = Mine([weight], lr=0.5)
    for _ in range(3):
        weight.grad = torch.ones(2)
        assert optimizer.step() == "mine"
    assert counter.completed == 3
    assert weight.tolist() == [-0.5, -0.5]


def test_an_optimizer_of_another_thread_is_no_part_of_a_step(monkeypatch):
    # GIVEN an optimizer in whose step another thread takes a step of its own, and is waited for
    monkeypatch.setattr(torch.optim.Optimizer, "profile_hook_step", torch.optim.Optimizer.profile_hook_step)
    stepped = []
    counter = StepCounter(lambda completed: None)
    monkeypatch.setattr(counter, "optimizer_stepped", stepped.append)
    install_detectors(counter, lambda ns: None, lambda: None)

    class Waits(torch.optim.SGD):
        def step(self, closure=None):
            thread = threading.Thread(target=inner.step)
            thread.start()
            thread.join()
            return super().step(closure)

    class Inner(torch.optim.SGD):
        pass

    inner, outer = (kind([torch.nn.Parameter(torch.ones(2))], lr=0.5) for kind in (Inner, Waits))
    outer.step()
    assert stepped == [inner, outer]


def test_a_data_loader_is_timed_and_each_item_is_a_signal(monkeypatch):
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    monkeypatch.setattr(iterator, "__next__", iterator.__next__)
    spent: list[int] = []
    counter = StepCounter(lambda completed: None, "input")
    install_detectors(counter, spent.append, lambda: None)
    assert list(torch.utils.data.DataLoader([1.0, 2.0], batch_size=None)) == [1.0, 2.0]
    assert counter.completed == 2
    assert len(spent) == 3  # the end of the data is waited for too
    assert all(ns > 0 for ns in spent)


def new_optimizer():
    """Of a class of its own: a class is patched when its first optimizer is made."""

    class Fresh(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    return Fresh([torch.nn.Parameter(torch.ones(2))], lr=0.5)


def test_a_root_forward_keeps_its_arguments_and_its_backward_is_a_step(monkeypatch):
    class DDP:
        require_backward_grad_sync = True

        def _pre_forward(self, *inputs, **kwargs):
            return inputs, kwargs

    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", DDP)
    counter = StepCounter(lambda completed: None, "backward")
    phases = []
    install_detectors(counter, lambda ns: None, lambda: None, phase=phases.append)
    model, weight = DDP(), torch.ones(2, requires_grad=True)
    # GIVEN a backward without a root forward, two micro-batches under no_sync and one that reduces, a forward alone
    weight.sum().backward()
    for sync in (False, False, True):
        model.require_backward_grad_sync = sync
        assert model._pre_forward(1, labels=2) == ((1,), {"labels": 2})
        weight.sum().backward()
    model._pre_forward()
    with torch.no_grad():
        model._pre_forward()
    # THEN one step, and each part of it is told
    assert counter.completed == 1
    backward = ["backward", "backward_ended"]
    assert phases == [*backward, *["forward", "forward_calls", *backward] * 3, "forward", "forward_calls", "evaluation"]


def test_forwards_of_the_outermost_module_count_where_nothing_better_comes():
    counter = StepCounter(lambda completed: None)
    original = torch.nn.Module.__call__
    install_detectors(counter, lambda ns: None, lambda: None)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    loss = torch.nn.MSELoss()
    with torch.no_grad():
        for _ in range(5):
            loss(model(torch.ones(1, 2)), torch.ones(1, 2))
    # 5 steps: neither the inner modules nor the loss, which is a module as well, make more of them
    assert (counter.completed, counter.source, counter.trust) == (5, "forward", "uncertain")
    # AND every call passes through it only until something better counts
    assert torch.nn.Module.__call__ is not original
    counter.signal("user")
    assert torch.nn.Module.__call__ is original


def test_a_forward_that_fails_is_over():
    counter = StepCounter(lambda completed: None, "forward")
    install_detectors(counter, lambda ns: None, lambda: None)
    model = torch.nn.Linear(2, 2)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            model(torch.ones(1, 3))
    assert counter.completed == 3


def test_optimizers_that_were_made_before_count_as_well(monkeypatch):
    # GIVEN an optimizer and one of a class of its own, made before the detectors were installed, and one made after
    before = new_optimizer()
    monkeypatch.setattr("rankscope.agent.signals.optimizer._subclasses", lambda _kind: [type(before)])
    counter = StepCounter(lambda completed: None)
    install_detectors(counter, lambda ns: None, lambda: None)
    for _ in range(3):
        before.step()
        type(before)([torch.nn.Parameter(torch.ones(2))], lr=0.5)
    assert (counter.completed, counter.source) == (3, "optimizer")


def test_a_scaler_counts_once_a_step_and_also_where_it_skips():
    counter = StepCounter(lambda completed: None, "scaler")
    install_detectors(counter, lambda ns: None, lambda: None)
    optimizers = [new_optimizer() for _ in range(2)]
    scaler = torch.amp.GradScaler("cpu")
    for gradient in (1.0, float("inf"), 1.0):
        for optimizer in optimizers:
            (weight,) = optimizer.param_groups[0]["params"]
            weight.grad = scaler.scale(torch.full((2,), gradient))
            scaler.step(optimizer)
        scaler.update()
    assert counter.completed == 3


def test_every_signal_is_in_the_table_and_can_be_configured():
    files = {p.stem for p in Path(base.__file__).parent.glob("*.py")} - {"__init__", "base", "table"}
    assert {signal.name for signal in OURS} == files
    assert set(step_sources()) == {"auto", *files}
    for signal in OURS:
        assert StepsConfig(source=signal.name).source == signal.name
        assert signal.name in (StepsConfig.__doc__ or "") + Path(config.__file__).read_text(encoding="utf-8")


@pytest.fixture(params=["torch.cuda.CUDAGraph", "torch.accelerator.Graph"])
def cuda_graphs(monkeypatch, request):
    """Capture without a device: what stands for a graph only says when a stream is captured."""
    captures: list[object] = []

    class Graph:
        def capture_begin(self, pool=None):
            captures.append(self)

        def capture_end(self):
            captures.clear()

        def replay(self):
            pass

    for name in ("torch.cuda.CUDAGraph", "torch.accelerator.Graph"):
        monkeypatch.setattr(name, Graph if name == request.param else type("Other", (Graph,), {}), raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(captures))
    monkeypatch.setattr(torch.optim.Optimizer, "profile_hook_step", torch.optim.Optimizer.profile_hook_step)
    return SimpleNamespace(Graph=Graph, captures=captures)


def test_a_captured_step_is_one_at_each_replay(cuda_graphs):
    # GIVEN two eager steps, one that is captured with its root forward, and three replays
    seen: list[tuple[int, bool]] = []
    counter = StepCounter(lambda completed: seen.append((completed, bool(cuda_graphs.captures))))
    signal = install_detectors(counter, lambda ns: None, lambda: None)
    optimizer = new_optimizer()

    def step():
        signal("backward")
        optimizer.step()

    step()
    step()
    graph = cuda_graphs.Graph()
    graph.capture_begin(pool=None)
    step()
    graph.capture_end()
    assert seen == [(1, False), (2, False)]
    for _ in range(3):
        graph.replay()
    assert seen == [(number, False) for number in (1, 2, 3, 4, 5)]


def test_a_graph_without_an_optimizer_is_no_step(cuda_graphs):
    counter = StepCounter(lambda completed: None)
    install_detectors(counter, lambda ns: None, lambda: None)
    optimizer = new_optimizer()
    graph = cuda_graphs.Graph()
    graph.capture_begin()
    graph.capture_end()
    for _ in range(3):
        graph.replay()
        optimizer.step()
    assert counter.completed == 3


def test_the_callback_runs_before_a_capture_begins(cuda_graphs):
    capturing: list[bool] = []
    install_detectors(
        StepCounter(lambda completed: None), lambda ns: None, lambda: capturing.append(bool(cuda_graphs.captures))
    )
    cuda_graphs.Graph().capture_begin()
    assert capturing == [False]


@pytest.mark.parametrize("fails_in", ["", "capture_begin", "capture_end"])
def test_the_callback_runs_after_a_capture_has_ended_in_any_way(cuda_graphs, monkeypatch, fails_in):
    def fail(self):
        raise RuntimeError("CUDA error: operation not permitted")

    if fails_in:
        monkeypatch.setattr(cuda_graphs.Graph, fails_in, fail)
    under_way: list[int] = [0]

    def count(by: int) -> None:
        under_way[0] += by

    install_detectors(
        StepCounter(lambda completed: None), lambda ns: None, lambda: count(1), graph_ends=lambda: count(-1)
    )
    graph = cuda_graphs.Graph()
    with pytest.raises(RuntimeError) if fails_in == "capture_begin" else nullcontext():
        graph.capture_begin()
    assert under_way[0] == 0 if fails_in == "capture_begin" else under_way[0] > 0
    with pytest.raises(RuntimeError) if fails_in == "capture_end" else nullcontext():
        if fails_in != "capture_begin":
            graph.capture_end()
    assert under_way == [0]


def test_a_graph_captured_again_forgets_what_it_held(cuda_graphs):
    counter = StepCounter(lambda completed: None)
    install_detectors(counter, lambda ns: None, lambda: None)
    optimizer = new_optimizer()
    graph = cuda_graphs.Graph()
    for _ in range(2):
        graph.capture_begin()
        optimizer.step()
        graph.capture_end()
    graph.replay()
    assert counter.completed == 1


def test_a_graph_keeps_no_optimizer_alive(cuda_graphs):
    counter = StepCounter(lambda completed: None)
    install_detectors(counter, lambda ns: None, lambda: None)
    optimizer = new_optimizer()
    graph, gone = cuda_graphs.Graph(), weakref.ref(optimizer)
    graph.capture_begin()
    optimizer.step()
    graph.capture_end()
    del optimizer
    gc.collect()
    assert gone() is None
    graph.replay()
    assert counter.completed == 0

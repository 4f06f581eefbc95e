"""What counts as a step. The expected numbers follow from the definitions in agent/steps/counter.py."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

from rankscope.agent.steps.counter import PATIENCE, StepCounter, install_detectors


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
        counter.signal("forward")
        counter.optimizer_stepped(optimizer)
        counter.optimizer_stepped(optimizer)
    assert counter.completed == 4


def test_forwards_that_vanish_into_a_compiled_region_do_not_stop_the_count():
    counter, optimizer = StepCounter(lambda completed: None), Thing()
    counter.signal("forward")
    for _ in range(PATIENCE + 10):
        counter.optimizer_stepped(optimizer)
    # of 26 steps the first counts, the next PATIENCE - 1 = 15 look like repeats of it, the other 10 count
    assert counter.completed == 1 + 10


def test_weak_signals_count_only_after_patience():
    assert counted(["input"] * (PATIENCE - 1)) == []
    assert counted(["input"] * (PATIENCE + 1)) == [PATIENCE, PATIENCE + 1]


def test_a_better_signal_takes_over():
    assert counted(["forward"] * PATIENCE + ["profiler", "forward", "user", "profiler"]) == [PATIENCE, 1, 1]


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


def test_a_root_forward_keeps_its_arguments(monkeypatch):
    class DDP:
        def _pre_forward(self, *inputs, **kwargs):
            return inputs, kwargs

    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", DDP)
    counter = StepCounter(lambda completed: None, "forward")
    install_detectors(counter, lambda ns: None, lambda: None)
    assert DDP()._pre_forward(1, labels=2) == ((1,), {"labels": 2})
    assert counter.completed == 1


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
        signal("forward")
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


def test_it_is_told_before_a_capture_begins(cuda_graphs):
    capturing: list[bool] = []
    install_detectors(
        StepCounter(lambda completed: None), lambda ns: None, lambda: capturing.append(bool(cuda_graphs.captures))
    )
    cuda_graphs.Graph().capture_begin()
    assert capturing == [False]


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

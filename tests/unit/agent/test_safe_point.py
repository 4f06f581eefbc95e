"""Points at which the state of a profiler may be changed."""

from __future__ import annotations

import gc
import weakref

import torch

from rankscope.agent.process.safe_point import CompiledFrames, after_backward, in_backward


def test_a_backward_within_a_backward_is_one_too():
    seen = []

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(in_backward())
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen.append(in_backward())
            with torch.enable_grad():
                value = torch.ones(2, requires_grad=True)
                value.register_hook(lambda _: seen.append(in_backward()))
                value.sum().backward()
            seen.append(in_backward())
            return gradient

    Inner.apply(torch.ones(2, requires_grad=True)).sum().backward()
    seen.append(in_backward())
    assert seen == [False, True, True, True, False]


def test_after_a_backward_is_outside(monkeypatch):
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    seen = []
    after_backward(lambda: seen.append(in_backward()))
    torch.ones(2, requires_grad=True).sum().backward()
    torch.autograd.backward(torch.ones(2, requires_grad=True).sum())
    assert seen == [False, False]


def test_a_region_of_dynamo_is_open_until_its_own_call_has_ended():
    # GIVEN a compiled step, called again and again from one place, so that its frames lie where those before lay
    frames = CompiledFrames()
    seen = []

    @torch.compiler.disable
    def boundary(number):
        seen.append(frames.ended())
        if number == 1:
            frames.note()
            seen.append(frames.ended())

    @torch.compile(backend="eager", dynamic=False)
    def step(value, number):
        value = value + 1
        boundary(number)
        return value + 1

    for number in range(4):
        step(torch.ones(2), torch.tensor(number))
    assert seen == [True, True, False, True, True]
    assert frames.ended()


def test_what_a_region_held_is_not_held_longer():
    frames = CompiledFrames()
    alive = []

    @torch.compiler.disable
    def boundary(value):
        alive.append(weakref.ref(value))
        frames.note()

    @torch.compile(backend="eager")
    def step(value):
        inner = value + 1
        boundary(inner)
        return inner.sum()

    step(torch.ones(2))
    gc.disable()
    try:
        assert alive[0]() is None
    finally:
        gc.enable()
    assert frames.ended()

"""End of the backward in which DDP or FSDP reduces gradients. A backward under ``no_sync`` only accumulates and does
not count."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from rankscope.agent.process.guard import guarded
from rankscope.agent.process.import_hooks import after_import
from rankscope.agent.process.safe_point import in_backward
from rankscope.agent.signals.base import Signal, Watch, after, before

__all__ = ["SIGNAL"]


def _install(watch: Watch) -> None:
    due = False

    @guarded
    def begins(model: Any) -> None:
        if not torch.is_grad_enabled():
            watch.phase("evaluation")
            return
        watch.phase("forward")
        if _communicates(model):
            watch.phase("forward_calls")

    def forward(model: Any) -> None:
        nonlocal due
        watch.between()
        if torch.is_grad_enabled():
            watch.root_forward()
            if getattr(model, "require_backward_grad_sync", True) and getattr(model, "_sync_gradients", True):
                due = True
                watch.expect("backward")

    def ended() -> None:
        nonlocal due
        if due:
            due = False
            watch.signal("backward")

    before(torch.nn.parallel.DistributedDataParallel, "_pre_forward", begins)
    after(torch.nn.parallel.DistributedDataParallel, "_pre_forward", forward)
    after_import("torch.distributed.fsdp._fully_shard._fsdp_state", lambda: _watch_fsdp2(begins, forward))
    after_import("torch.distributed.fsdp.fully_sharded_data_parallel", lambda: _watch_fsdp1(begins, forward))
    _watch_backward(watch.phase, ended)


def _communicates(model: Any) -> bool:
    """Return whether this forward waits for late ranks: FSDP gathers parameters, DDP broadcasts buffers."""
    will = getattr(model, "will_sync_module_buffers", None)  # DDP's
    return will is None or bool(will())


def _watch_backward(phase: Callable[[str], None], ended: Callable[[], None]) -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> None:
        outermost = not torch.compiler.is_compiling() and not in_backward()
        if outermost:
            phase("backward")
        original(*args, **kwargs)
        if outermost:
            phase("backward_ended")
            ended()

    torch.autograd.backward = backward


def _watch_fsdp2(begins: Callable[[Any], None], forward: Callable[[Any], None]) -> None:
    from torch.distributed.fsdp._fully_shard import _fsdp_state

    def pre_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "_is_root", None) is not False and not torch.compiler.is_compiling():
            begins(self)  # before the first forward no instance is marked as the root; the first to run is the root
        result = original(self, *args, **kwargs)
        if getattr(self, "_is_root", False) and not torch.compiler.is_compiling():
            forward(self)
        return result

    original = _fsdp_state.FSDPState._root_pre_forward  # noqa: SLF001 - the one place every root forward passes
    _fsdp_state.FSDPState._root_pre_forward = pre_forward  # type: ignore[method-assign]  # noqa: SLF001


def _watch_fsdp1(begins: Callable[[Any], None], forward: Callable[[Any], None]) -> None:
    from torch.distributed.fsdp import fully_sharded_data_parallel as fsdp1

    original = fsdp1.FullyShardedDataParallel.forward

    @functools.wraps(original)
    def root_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Before the first forward no instance is marked as the root; the first to run is the root.
        if self._is_root is not False and not torch.compiler.is_compiling():
            begins(self)
            forward(self)
        return original(self, *args, **kwargs)

    fsdp1.FullyShardedDataParallel.forward = root_forward  # type: ignore[method-assign]


SIGNAL = Signal("backward", "the end of DDP's or FSDP's backward", "likely", patience=True, install=_install)

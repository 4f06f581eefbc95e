"""The end of the backward in which DDP or FSDP reduces gradients. One under ``no_sync`` accumulates, and is none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from rankscope.agent.process.import_hooks import after_import
from rankscope.agent.process.safe_point import in_backward
from rankscope.agent.signals.base import Signal, Watch, after

__all__ = ["SIGNAL"]


def _install(watch: Watch) -> None:
    due = False

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

    after(torch.nn.parallel.DistributedDataParallel, "_pre_forward", forward)
    after_import("torch.distributed.fsdp._fully_shard._fsdp_state", lambda: _watch_fsdp2(forward))
    after_import("torch.distributed.fsdp.fully_sharded_data_parallel", lambda: _watch_fsdp1(forward))
    _watch_backward(ended)


def _watch_backward(ended: Callable[[], None]) -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        if not torch.compiler.is_compiling() and not in_backward():
            ended()

    torch.autograd.backward = backward


def _watch_fsdp2(forward: Callable[[Any], None]) -> None:
    from torch.distributed.fsdp._fully_shard import _fsdp_state

    def pre_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if getattr(self, "_is_root", False) and not torch.compiler.is_compiling():
            forward(self)
        return result

    original = _fsdp_state.FSDPState._root_pre_forward  # noqa: SLF001 - the one place every root forward passes
    _fsdp_state.FSDPState._root_pre_forward = pre_forward  # type: ignore[method-assign]  # noqa: SLF001


def _watch_fsdp1(forward: Callable[[Any], None]) -> None:
    from torch.distributed.fsdp import fully_sharded_data_parallel as fsdp1

    original = fsdp1.FullyShardedDataParallel.forward

    @functools.wraps(original)
    def begins(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Before the first forward no instance knows whether it is the root, and the first to run is it.
        if self._is_root is not False and not torch.compiler.is_compiling():
            forward(self)
        return original(self, *args, **kwargs)

    fsdp1.FullyShardedDataParallel.forward = begins  # type: ignore[method-assign]


SIGNAL = Signal("backward", "the end of DDP's or FSDP's backward", "likely", patience=True, install=_install)

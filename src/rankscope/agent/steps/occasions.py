"""Evaluations and checkpoints, which make a step long without a fault; they are flagged in the step log."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from rankscope.agent.process.guard import guarded
from rankscope.agent.process.import_hooks import after_import
from rankscope.agent.signals.base import after
from rankscope.records.running.step_log import CHECKPOINT, EVALUATION

__all__ = ["watch_occasions"]


def watch_occasions(happened: Callable[[int], None]) -> None:
    """Call ``happened`` with a flag of the step log whenever a model is set to evaluation mode or something is
    saved."""
    happened = guarded(happened)
    after(torch.nn.Module, "eval", lambda _module: happened(EVALUATION))
    saved = functools.partial(happened, CHECKPOINT)
    _after_function([torch, torch.serialization], "save", saved)
    after_import("safetensors.torch", lambda: _after_safetensors(saved))


def _after_safetensors(saved: Callable[[], None]) -> None:
    import safetensors.torch  # type: ignore[import-not-found,unused-ignore]

    _after_function([safetensors.torch], "save_file", saved)


def _after_function(modules: list[Any], name: str, call: Callable[[], None]) -> None:
    """Wrap a function that all of these modules refer to; it is pickled by its name in one of them."""
    original = getattr(modules[0], name)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not torch.compiler.is_compiling():
            call()
        return result

    for module in modules:
        if getattr(module, name, None) is original:
            setattr(module, name, function)

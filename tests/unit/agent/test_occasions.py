"""Steps with evaluations and checkpoints are flagged."""

from __future__ import annotations

import io
import pickle

import torch

from rankscope.agent.steps.occasions import watch_occasions
from rankscope.records.running.step_log import CHECKPOINT, EVALUATION


def test_evaluations_and_checkpoints_are_seen_and_change_nothing(monkeypatch):
    monkeypatch.setattr(torch, "save", torch.save)  # put back at the end
    monkeypatch.setattr(torch.serialization, "save", torch.serialization.save)
    monkeypatch.setattr(torch.nn.Module, "eval", torch.nn.Module.eval)
    seen = []
    watch_occasions(seen.append)
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    model.train()
    assert seen == []
    assert model.eval() is model
    assert seen == [EVALUATION], "once, however many modules are inside"
    assert not model[0].training
    stream = io.BytesIO()
    torch.save({"x": torch.ones(2)}, stream)
    assert seen == [EVALUATION, CHECKPOINT]
    stream.seek(0)
    assert torch.load(stream)["x"].tolist() == [1, 1]
    assert pickle.loads(pickle.dumps(torch.save)) is torch.save


def test_an_error_of_rankscope_is_not_raised_into_the_script(monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "eval", torch.nn.Module.eval)
    monkeypatch.setattr(torch, "save", torch.save)
    monkeypatch.setattr(torch.serialization, "save", torch.serialization.save)

    def broken(_flag: int) -> None:
        raise RuntimeError("ours")

    watch_occasions(broken)
    torch.nn.Linear(1, 1).eval()
    torch.save(1, io.BytesIO())

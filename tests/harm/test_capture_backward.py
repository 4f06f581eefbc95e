"""Step boundaries within a backward: windows open and close at the next point outside, and are complete."""

from __future__ import annotations

import gzip
import json
import textwrap

import pytest

from support.launching import RANKSCOPE, TORCHRUN, flags_of

pytestmark = [pytest.mark.dist, pytest.mark.forked]

HOOKED = """
    import sys, torch
    torch.manual_seed(0)
    style = sys.argv[1]
    layers = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
    each = {p: torch.optim.SGD([p], lr=0.05, momentum=0.9) for p in layers.parameters()}

    def step(p):
        each[p].step()
        each[p].zero_grad()

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):  # a backward within a backward, in which everything is stepped
            with torch.enable_grad():
                layers(torch.ones(4, 16)).square().mean().backward()
            return g

    for p in layers.parameters():
        p.register_post_accumulate_grad_hook(step)
    weight = torch.ones(4, 16, requires_grad=True)
    for number in range(40):
        if style == "nested":
            Inner.apply(weight).sum().backward()
        elif style == "grad":  # torch.autograd.backward itself, on several roots
            loss = layers(torch.randn(4, 16)).square()
            torch.autograd.backward([loss.mean(), loss.sum()])
        elif style == "raises":
            loss = layers(torch.randn(4, 16)).square().mean()
            loss.backward()
            try:
                torch.autograd.backward(torch.ones(1))  # needs no gradient
            except RuntimeError:
                pass
        else:
            layers(torch.randn(4, 16)).square().mean().backward()
    print("end", [p.sum().item().hex() for p in layers.parameters()], flush=True)
"""


@pytest.mark.parametrize("style", ["plain", "nested", "grad", "raises"])
def test_optimizers_that_step_inside_backward(start, finish, tmp_path, style):
    script = tmp_path / "hooked.py"
    script.write_text(textwrap.dedent(HOOKED))
    settings = flags_of(f"run.dir={tmp_path / 'RUN'}", "schedule.skip_first=3", "analysis.enabled=false")
    done = finish(start([*RANKSCOPE, *settings, script, style]))
    assert done.code == 0, done.stderr
    assert done.stdout == finish(start([*TORCHRUN, script, style])).stdout
    (record,) = done.records()
    assert (record.status, record.first_step, record.last_step) == ("ok", 6, 11)
    with gzip.open(done.run.trace(0, 0, 0)) as stream:
        events = json.load(stream)["traceEvents"]
    marks = {e["name"] for e in events if e.get("name", "").startswith("ProfilerStep#")}
    assert marks == {f"ProfilerStep#{step}" for step in range(6, 12)}
    assert sum(e.get("name") == "aten::addmm" for e in events) > 0

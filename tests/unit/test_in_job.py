"""What a training script may call: nothing is raised, nothing is changed, and without an agent nothing happens."""

from __future__ import annotations

import pytest
import torch

import rankscope
from rankscope import in_job
from rankscope.agent.backends.open_ranges import OpenRanges
from rankscope.agent.process import guard
from rankscope.agent.process.guard import kept_messages
from rankscope.agent.script_calls import ScriptCalls
from rankscope.agent.windows.notices import Notices
from rankscope.records.rank import MAX_MARKS
from rankscope.rundir.spool import Spool


class Recorder:
    """Notes what begins and ends."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, name: str) -> Recorder.Block:
        self.seen.append(f"+{name}")
        return Recorder.Block(self.seen, name)

    class Block:
        def __init__(self, seen: list[str], name: str) -> None:
            self.seen, self.name = seen, name

        def close(self) -> None:
            self.seen.append(f"-{self.name}")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path) -> ScriptCalls:
    """Those of a rank in step 7."""
    monkeypatch.setattr(in_job, "agent", None)
    monkeypatch.setattr(guard, "_kept", [])  # of which there are at most so many
    monkeypatch.setattr(in_job, "compiling", in_job.compiling)
    calls = ScriptCalls(lambda: 7, lambda: None)
    calls.notices = Notices(Spool(tmp_path), 0)
    calls.install()
    return calls


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr(in_job, "recorder", found)
    return found


def test_without_an_agent_nothing_happens_whatever_is_said() -> None:
    @rankscope.region("loss")
    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    with rankscope.region("outer") as region, rankscope.region(3):
        assert double(2) == 4
    assert (double.__name__, double.__doc__, repr(region)) == ("double", "Twice.", "rankscope.region('outer')")
    assert rankscope.mark(object(), x=object()) is None
    assert rankscope.describe(tokens="many") is None
    assert (rankscope.capture(-1), rankscope.active()) == (False, False)
    with pytest.raises(ZeroDivisionError), rankscope.region("fails"):
        1 / 0  # noqa: B018


def test_regions_nest_also_in_themselves_and_end_with_an_error(recorder: Recorder) -> None:
    outer = rankscope.region("a")
    with outer, rankscope.region("b"), outer:
        pass
    assert recorder.seen == ["+a", "+b", "+a", "-a", "-b", "-a"]
    with pytest.raises(ValueError, match="theirs"), rankscope.region("c"):
        raise ValueError("theirs")
    assert recorder.seen[-2:] == ["+c", "-c"]


def test_a_window_may_open_and_close_inside_of_a_region(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> None:
    region = rankscope.region("a")
    monkeypatch.setattr(in_job, "recorder", None)
    with region:
        monkeypatch.setattr(in_job, "recorder", recorder)
        with region:
            pass
    assert recorder.seen == ["+a", "-a"]
    with region:
        monkeypatch.setattr(in_job, "recorder", None)
    with region:
        pass
    assert recorder.seen == ["+a", "-a"] * 2


def test_an_error_of_ours_in_a_region_is_kept_and_the_script_goes_on(calls: ScriptCalls, monkeypatch) -> None:
    class Broken:
        def begin(self, name: str) -> None:
            raise RuntimeError("no luck")

    monkeypatch.setattr(in_job, "recorder", Broken())
    with rankscope.region("a"):
        done = True
    assert done
    assert "region 'a' was not recorded: RuntimeError: no luck" in kept_messages()


def test_a_generator_is_refused_where_it_is_decorated() -> None:
    with pytest.raises(TypeError, match="a generator or coroutine runs after its call has returned"):

        @rankscope.region("batches")
        def batches():
            yield 1

    with pytest.raises(TypeError, match="a generator or coroutine"):

        @rankscope.region("later")
        async def later() -> None: ...


def test_a_block_that_outlasts_the_recording_ends_once(tmp_path) -> None:
    ranges = OpenRanges()
    with torch.profiler.profile() as profile:
        ranges.watch()
        with rankscope.region("whole"):
            pass
        across = rankscope.region("across")
        across.__enter__()
        ranges.end()
        ranges.renew()
        assert in_job.recorder is None
    across.__exit__(None, None, None)
    names = [event.name for event in profile.events() if event.name in ("whole", "across")]
    assert sorted(names) == ["across", "across", "whole"]  # ended with the recording, and begun again


def test_marks_and_what_a_step_processes_are_kept(calls: ScriptCalls) -> None:
    rankscope.mark("checkpoint", gib=12, path=torch.ones(1), files=torch.tensor(3).numpy()[()])
    rankscope.mark(None)
    rankscope.describe(tokens=4096, samples=float("nan"))
    rankscope.describe(tokens=8192, model_flop=torch.ones(1))
    assert rankscope.active()
    (mark,) = calls.marks
    assert (mark.step, mark.name, mark.values) == (7, "checkpoint", {"gib": 12.0, "files": 3.0})
    assert calls.described == {"tokens": 8192.0}
    said = " ".join(kept_messages())
    for part in ("path is no finite number, but a Tensor", "its name is a NoneType", "samples is no", "model_flop is"):
        assert part in said
    for _ in range(2 * MAX_MARKS):
        rankscope.mark("each step")
    assert len(calls.marks) == MAX_MARKS


def test_a_mark_is_a_range_in_the_window(calls: ScriptCalls, recorder: Recorder) -> None:
    rankscope.mark("loss spike")
    assert recorder.seen == ["+rankscope.mark: loss spike", "-rankscope.mark: loss spike"]


def test_a_request_is_passed_on_if_it_can_be_followed(calls: ScriptCalls) -> None:
    assert rankscope.capture(steps=3, detail="stacks", reason="loss\nspike")
    asked = calls.notices.asked()
    assert (asked.name, asked.steps, asked.detail, asked.at, asked.reason) == ("script", 3, "stacks", 7, "loss spike")
    for wrong in ({"steps": 0}, {"steps": 1001}, {"detail": "all"}, {"steps": "3"}):
        assert not rankscope.capture(**wrong)
    calls.notices = None  # before the first step
    assert not rankscope.capture()
    calls.leave()
    assert not rankscope.active()


def test_compiled_code_has_no_break_and_is_compiled_once(calls: ScriptCalls, monkeypatch) -> None:
    @rankscope.region("inner")
    def inner(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    def step(x: torch.Tensor) -> torch.Tensor:
        with rankscope.region("attention"):
            y = inner(x) + 1
        rankscope.mark("here", a=1)
        rankscope.describe(tokens=3)
        if rankscope.active() and not rankscope.capture(3):
            y = y + 1
        return y.relu()

    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(step, backend=backend, fullgraph=True)
    x = torch.ones(3)
    results = [compiled(x)]
    monkeypatch.setattr(in_job, "recorder", Recorder())  # a window opens
    results.append(compiled(x))
    monkeypatch.setattr(in_job, "recorder", None)
    results.append(compiled(x))
    assert len(graphs) == 1
    assert all(torch.equal(result, torch.full((3,), 4.0)) for result in results)
    assert calls.marks == []

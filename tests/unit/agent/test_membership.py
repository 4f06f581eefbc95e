"""Which rank a process is; of several processes of a rank only one is recorded."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rankscope.agent import membership
from rankscope.agent.bootstrap import is_rank
from rankscope.agent.membership import Membership
from rankscope.agent.process import guard
from rankscope.agent.process.guard import kept_messages
from rankscope.config import ToolConfig, to_agent_spec
from rankscope.procfs import running_since
from rankscope.rundir.spool import ENV_IDENTITY, ENV_SPEC, Spool


@pytest.fixture
def member(tmp_path, monkeypatch):
    for name in (
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "RANK",
        "WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "SLURM_PROCID",
        "TORCHELASTIC_RESTART_COUNT",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(guard, "_kept", [])
    spec = to_agent_spec(ToolConfig(), run_id="r", spool=tmp_path)

    def make(environ: dict[str, str] | None = None, *, certain: bool = False) -> Membership:
        withdraw = lambda: os.environ.pop(ENV_SPEC)  # noqa: E731
        return Membership(spec, Spool(tmp_path), environ or {}, certain=certain, withdraw=withdraw)

    return make


def test_a_rank_from_a_launcher_is_known_at_once(member):
    process = member({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, certain=True).process
    assert (process.rank, process.world_size, process.local_rank, process.attempt) == (1, 2, 0, 0)


def test_what_may_be_a_launcher_waits_for_the_process_group(member, monkeypatch):
    found = member({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"})
    assert found.process is None
    assert not found.settle(3)
    monkeypatch.setenv(ENV_SPEC, "/spool/agent.json")
    monkeypatch.setattr(membership, "_group", lambda: (5, 8))
    assert found.settle(4)
    assert (found.process.rank, found.process.world_size) == (5, 8)
    assert ENV_SPEC not in os.environ  # what it starts from now on is no rank


def test_without_a_process_group_it_is_a_job_of_one_when_its_window_comes_near(member):
    found = member()
    # the default window warms up from step 11, and is announced 3 steps before
    assert [found.settle(step) for step in (1, 6, 7)] == [False, False, True]
    assert (found.process.rank, found.process.world_size, found.process.local_rank) == (0, 1, -1)


def test_of_several_processes_of_a_rank_the_first_is_it_and_one_is_the_first_of_its_node(member):
    told = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0"}
    first, second, other = (member({**told, "RANK": rank}, certain=True) for rank in ("1", "1", "0"))
    assert [found.claim() for found in (first, second, other)] == [True, False, True]
    assert [found.is_first_of_node for found in (first, other)] == [True, False]


def test_of_two_jobs_at_the_same_time_one_is_recorded_and_not_a_mixture(member, monkeypatch):
    def one(rank: int, port: str | None) -> tuple[bool, Membership]:
        if port is None:
            monkeypatch.delenv("MASTER_PORT", raising=False)
        else:
            monkeypatch.setenv("MASTER_PORT", port)
        found = member({"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": "0"}, certain=True)
        return found.claim(), found

    claimed, first = one(0, "2001")
    assert claimed
    first.other_jobs()
    assert kept_messages() == []
    assert [one(rank, "2002")[0] for rank in (0, 1)] == [False, False]
    assert [one(rank, "2001")[0] for rank in (1, 0)] == [True, False]
    assert one(2, None)[0]  # says nothing about its job, as before
    first.other_jobs()
    (message,) = kept_messages()
    assert re.search(r"another job ran .*: process \d+ is rank 1 of 3, too", message)


def test_lone_jobs_at_the_same_time_are_told(member):
    first, second = member(), member()
    assert (first.settle(7), second.settle(7)) == (True, True)
    assert (first.claim(), second.claim()) == (True, False)
    first.other_jobs()
    assert "rank 0 of 1, too" in kept_messages()[0]


@pytest.mark.parametrize(
    ("alive", "attempts"),
    [
        ({0: True, 1: True}, [None, None, 0]),  # taken, taken, and rank 2 joins those that live
        ({0: False, 1: False}, [1, 1, 1]),  # all are gone: what comes now is another attempt
        ({0: False, 1: True}, [1, None, 0]),  # rank 0 was started again, the others are still those of before
    ],
)
def test_attempts_are_distinguished_without_a_restart_count(member, tmp_path, monkeypatch, alive, attempts):
    begun = running_since(Path("/proc/self"))
    for rank, running in alive.items():
        (tmp_path / f"owner_0_{rank}").write_text(f"{os.getpid()} {begun if running else 1}")
    found = []
    for rank in range(3):
        one = member({"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": "0"}, certain=True)
        claimed = one.claim()
        found.append(one.process.attempt if claimed else None)
        if claimed and one.process.attempt == 0:
            (tmp_path / f"owner_0_{rank}").unlink()
        if alive == {0: False, 1: True} and rank == 0:
            (tmp_path / "owner_1_0").unlink()
    assert found == attempts


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({"RANK": "0", "WORLD_SIZE": "1"}, True),  # torchrun began below
        ({"RANK": "0", "WORLD_SIZE": "1", ENV_IDENTITY: "torchrun 0/1"}, False),  # of a pod, say: its launcher
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", ENV_IDENTITY: "torchrun 0/2"},
            True,
        ),  # exec in a rank
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, True),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, False),
        ({"PMIX_RANK": "0"}, False),
        ({}, False),
    ],
)
def test_who_is_a_rank_for_certain(environ, rank):
    assert is_rank(environ) is rank


def test_a_round_that_torchrun_does_not_count_is_an_attempt_of_its_own(member, tmp_path, monkeypatch):
    told = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": "0"}
    lone = member(told, certain=True)
    monkeypatch.setattr(membership, "started_process", lambda _told: os.getpid())
    assert (lone.claim(), lone.process.attempt) == (True, 0)
    # GIVEN what torchrun had started for this rank lives on, as a wrapper does that starts another script
    assert not member(told, certain=True).claim()
    # WHEN a node has joined: all ranks are started again, and the count is the same
    (tmp_path / "owner_0_0").write_text(f"{os.getpid()} 1")
    grown = [member({**told, "RANK": rank, "WORLD_SIZE": "2"}, certain=True) for rank in ("1", "0")]
    assert [(one.claim(), one.process.attempt) for one in grown] == [(True, 1), (True, 1)]


def test_a_node_that_comes_later_begins_with_the_attempt_of_the_others(member, tmp_path):
    Spool(tmp_path).earlier.write_text("3")
    one = member({"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "0"}, certain=True)
    assert (one.process.attempt, one.claim(), one.process.attempt) == (3, True, 3)


def test_a_rank_that_became_another_program_counts_its_steps_in_an_attempt_of_its_own(member):
    told = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0"}
    first, peer = (member({**told, "RANK": rank}, certain=True) for rank in ("0", "1"))
    assert (first.claim(), peer.claim()) == (True, True)
    # WHEN rank 0 replaces itself, and then its peer
    for rank in ("0", "1"):
        (first if rank == "0" else peer).release()
        again = member({**told, "RANK": rank}, certain=True)
        assert (again.claim(), again.process.attempt, again.is_first_of_node) == (True, 1, rank == "0")
        assert not member({**told, "RANK": rank}, certain=True).claim()  # and nobody passes for it a second time

"""Choice of the carrier of announcements between nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from rankscope.agent.carriers import base, job_store, node_spool, run_directory, torchrun_store
from rankscope.agent.carriers.base import Carrier, Post
from rankscope.agent.carriers.table import OURS, carrier_for, choose_carrier
from rankscope.agent.windows.notices import Notices
from rankscope.rundir.spool import Spool

STORE = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post("r", 0, 1, Notices(Spool(tmp_path), 0), {})


@pytest.fixture
def process_group(tmp_path: Path):
    def begin(store: dist.Store) -> None:
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)

    yield begin
    dist.destroy_process_group()


def test_every_carrier_is_in_the_table() -> None:
    files = {p.stem for p in Path(base.__file__).parent.glob("*.py")} - {"__init__", "base", "table", "store_relay"}
    assert {carrier.name for carrier in OURS} == files


def test_one_node_needs_none(post: Post) -> None:
    carrier = choose_carrier(post, several_nodes=False, carries=True)
    assert carrier is node_spool.CARRIER
    assert not post.notices.stands("carry")


def test_torchruns_store_comes_first_and_the_run_directory_last(post: Post) -> None:
    assert carrier_for(post._replace(environ=STORE)) is torchrun_store.CARRIER
    assert carrier_for(post) is run_directory.CARRIER


def test_the_jobs_own_store_carries_where_it_is_one_that_can_be_reached(post: Post, process_group) -> None:
    process_group(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
    assert carrier_for(post) is job_store.CARRIER


def test_a_store_in_a_file_does_not(post: Post, process_group, tmp_path: Path) -> None:
    process_group(dist.FileStore(str(tmp_path / "store"), 1))
    assert carrier_for(post) is run_directory.CARRIER


def test_one_that_fails_is_passed_over(post: Post) -> None:
    def broken(_post: Post) -> bool:
        raise RuntimeError("no luck")

    theirs = Carrier("theirs", "by pigeon", 9.0, broken, lambda _post: None)
    assert carrier_for(post, (theirs, *OURS)) is run_directory.CARRIER


def test_the_run_directory_is_asked_for_by_who_carries(post: Post) -> None:
    assert choose_carrier(post, several_nodes=True, carries=False) is run_directory.CARRIER
    assert not post.notices.stands("carry")
    choose_carrier(post, several_nodes=True, carries=True)
    assert post.notices.read("carry") == "other"

"""gather.keep=suspects: traces are kept of the ranks that the verdict from the columns names."""

from __future__ import annotations

import gzip
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from rankscope.node.late_gathering import gather_later
from rankscope.privacy.verify import verify
from rankscope.records.codec import from_json
from rankscope.records.report import ClusterReport
from rankscope.records.running.node_task import JobEnd
from rankscope.rundir.layout import RunDir
from support.node import Node, until
from support.worlds.catalogue import waiting_for_input

pytestmark = [pytest.mark.data, pytest.mark.long]

LATE, RANKS, NODES = 5, 8, 2
KEPT = [0, 4, 5]
"""Rank 0, the rank at fault, and of the two sound ranks nearest to it the lower one."""
LIMIT_S = 580
"""A busy machine leaves little to processes of the lowest priority."""
TASK = {"keep": "suspects", "report": True, "report_timeout_s": 500.0, "gather_timeout_s": 500.0, "alone": False}


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return waiting_for_input(RANKS, LATE)


def ranks_of(number: int) -> range:
    return range(number * RANKS // NODES, (number + 1) * RANKS // NODES)


@pytest.fixture
def nodes(tmp_path):
    """Two nodes of one run, with four ranks each; their helpers are ended with the test."""
    run = RunDir(tmp_path / "RUN")
    both = [Node(tmp_path / f"spool{number}", run, node=str(number), **TASK) for number in range(NODES)]
    yield both
    for node in both:
        node.close()


def end(nodes: list[Node]) -> None:
    """The job has ended on all of them."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda node: node.end(limit_s=LIMIT_S), nodes))


def traces(run: RunDir) -> list[int]:
    return sorted(int(path.name[5:10]) for path in run.window(0, 0).glob("*.trace.json.gz"))


def test_traces_of_the_late_rank_and_of_two_others_are_kept_whole(nodes, texts):
    head, other = nodes
    for number, node in enumerate(nodes):
        node.start()
        node.announces(ranks_of(number), texts, host=f"host{number}")
    until(lambda: len(head.spool.holds()) + len(other.spool.holds()) == RANKS)
    assert traces(head.run) == []  # nothing is decided yet, and nothing lost
    end(nodes)
    report = from_json(ClusterReport, (head.run.report / "report.json").read_bytes())
    assert report.verdict.ranks == [LATE]
    assert traces(head.run) == KEPT
    for rank in KEPT:
        assert gzip.decompress(head.run.trace(0, 0, rank).read_bytes()).decode() == texts[rank]
    (window,) = head.manifest.windows
    assert [(r.rank, r.columns is None) for r in window.records] == [(r, r in KEPT) for r in range(RANKS)]
    (said,) = (note for note in head.manifest.notes if "gather.keep" in note)
    assert "kept of ranks 0, 4, 5 (at fault: rank 5; " in said
    assert not [node for node in nodes if node.spool.path.exists()]
    assert verify(head.run.path).wrong == []


def test_a_helper_that_is_killed_before_and_after_the_decision_loses_nothing(nodes, texts):
    head, other = nodes
    for number, node in enumerate(nodes):
        node.start()
        node.announces(ranks_of(number), texts, host=f"host{number}")
    until(lambda: len(head.spool.holds()) + len(other.spool.holds()) == RANKS)
    other.kill()
    head.helper.finish(JobEnd(exit_code=0))
    with ThreadPoolExecutor(1) as pool:  # the head works on while the other is dead: a report needs nothing of it
        heard = pool.submit(head.hear, LIMIT_S)
        other.helper.next_message(0)  # notices it, and starts another
        other.helper.finish(JobEnd(exit_code=0))
        until(lambda: head.run.kept.exists() or len(other.spool.holds()) < RANKS // NODES)
        other.kill()
        other.hear(LIMIT_S)
        heard.result()
    assert traces(head.run) == KEPT
    assert verify(head.run.path).wrong == []


def test_what_a_killed_node_holds_is_gathered_later_as_was_decided(nodes, texts, tmp_path):
    head, other = nodes
    for number, node in enumerate(nodes):
        node.start()
        node.announces(ranks_of(number), texts, host=f"host{number}")
    until(lambda: len(other.spool.holds()) == RANKS // NODES)
    other.kill()
    copy = tmp_path / "undecided"
    shutil.copytree(other.spool.path, copy)
    gathered = gather_later(copy, tmp_path / "ELSEWHERE")
    assert (gathered.left, traces(gathered.run_dir)) == ("", [4, 5, 6, 7])  # nothing was decided there
    head.run.kept.write_text('{"ranks": [0, 5], "suspects": [5], "why": ""}')
    gathered = gather_later(other.spool.path)
    assert (gathered.left, traces(gathered.run_dir)) == ("", [5])
    assert not other.spool.path.exists()

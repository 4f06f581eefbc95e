"""Why a job stands still, from answers with a known truth."""

from __future__ import annotations

from dataclasses import replace

from rankscope.records.running.hang import Call, NodeAnswers, RankAnswer, RankState, ThreadStack
from rankscope.stuck.verdict import why_stuck


def call(seq: int, name: str = "all_reduce", sizes: list[list[int]] | None = None, *, done: bool = True, group="0"):
    return Call(
        group=group,
        seq=seq,
        name=f"gloo:{name}",
        done=done,
        sizes=sizes or [[32]],
        dtype="Float",
        created_ns=1000 * seq,
    )


def state(rank: int, calls: list[Call], *, world=2, part="backward", frame="train.py:9 in main", groups=None, **more):
    answer = RankAnswer(rank=rank, attempt=0, token=1, time_ns=1, steps=30, part=part, calls=calls)
    answer.recorder = more.pop("recorder", True)
    answer.groups = groups or {"0": list(range(world))}
    answer.stacks = [ThreadStack(name="MainThread", training=True, frames=[frame])]
    found = RankState(rank=rank, pid=100 + rank, state="S", steps=30, idle_s=70.0, answer=answer)
    return replace(found, **more)


def verdict(*ranks: RankState, world: int | None = None):
    answers = NodeAnswers(node="a", attempt=0, world_size=world or len(ranks), time_ns=5, after_s=60, ranks=[*ranks])
    return why_stuck([answers])


def test_a_rank_that_has_not_entered_a_call_is_named_with_what_it_does():
    found = verdict(
        state(0, [call(1), call(2, done=False)]),
        state(1, [call(1)], part="before", frame="/home/u/train.py:30 in fetch_a_batch"),
    )
    assert (found.kind, found.ranks, found.seq, found.group) == ("not_entered", [1], 2, "0")
    assert found.sentence == (
        "Rank 1 has not entered all_reduce number 2 of group 0 ([32] Float), in which rank 0 waits: between two steps, "
        "at train.py:30 in fetch_a_batch."
    )
    assert found.idle_s == 70


def test_a_rank_that_has_skipped_a_call():
    # rank 1 leaves out the second, so that its second is the third of the others
    theirs = [call(1), call(2, sizes=[[1]], done=False)]
    for others in ([theirs], [theirs, theirs]):
        ranks = [
            state(number, [*calls, call(3, "broadcast", [[3]], done=False)]) for number, calls in enumerate(others)
        ]
        last = len(ranks)
        found = verdict(*ranks, state(last, [call(1), call(2, "broadcast", [[3]], done=False)]))
        assert (found.kind, found.ranks, found.seq) == ("skipped", [last], 2)
        assert "has skipped all_reduce number 2 of group 0 ([1] Float)" in found.sentence


def test_ranks_that_call_in_another_order():
    one, two = ("all_reduce", [[1]]), ("broadcast", [[3]])
    found = verdict(
        state(0, [call(1), call(2, *one, done=False), call(3, *two, done=False)]),
        state(1, [call(1), call(2, *two, done=False), call(3, *one, done=False)]),
    )
    assert (found.kind, found.ranks, found.seq) == ("order", [0, 1], 2)
    found = verdict(*(state(r, [call(2, *one, done=False)]) for r in (0, 1)), state(2, [call(2, *two, done=False)]))
    assert (found.kind, found.ranks) == ("kinds", [2])


def test_of_two_ranks_the_one_is_named_that_does_not_call_as_before():
    """Calls that block: nobody knows what would have come next. But each step was all_reduce, broadcast, all_reduce."""
    step = (("all_reduce", [[1]]), ("broadcast", [[3]]), ("all_reduce", [[272]]))
    before = [call(1 + n, *step[n % 3]) for n in range(30)]
    found = verdict(
        state(0, [*before, call(31, *step[0], done=False)]), state(1, [*before, call(31, *step[1], done=False)])
    )
    assert (found.kind, found.ranks, found.seq) == ("kinds", [1], 31)
    assert "rank 1 calls broadcast of [3] and rank 0 calls all_reduce of [1]" in found.sentence
    found = verdict(
        state(0, [*before, call(31, *step[1], done=False)]), state(1, [*before, call(31, *step[0], done=False)])
    )
    assert found.ranks == [0]


def test_a_loop_that_sleeps_looks_the_same_whenever_it_is_asked():
    waits = state(0, [call(2, done=False)])
    for busy in ({"switches": 400}, {"cpu_s": 2.0}):
        assert verdict(waits, state(1, [call(1)], **busy)).kind == "long"
    # a rank that spins in a call (NCCL) is busy as well, and waits
    spins = state(0, [call(2, done=False)], cpu_s=4.0)
    assert verdict(spins, state(1, [call(1)])).kind == "not_entered"


def test_sizes_that_differ():
    found = verdict(*(state(r, [call(7, sizes=[[1000 if r == 2 else 1]], done=False)]) for r in range(3)))
    assert (found.kind, found.ranks, found.seq) == ("sizes", [2], 7)
    assert "rank 2 calls all_reduce of [1000] and ranks 0, 1 calls all_reduce of [1]" in found.sentence
    # what ranks receive of each other in an all-to-all may differ
    ragged = [state(r, [call(7, "alltoall_base", [[r + 1]], done=False)]) for r in range(3)]
    assert verdict(*ragged).kind == "all_in"


def test_all_are_in_and_nothing_moves():
    found = verdict(*(state(r, [call(4, done=False)]) for r in range(4)))
    assert (found.kind, found.ranks) == ("all_in", [])
    assert "the network is silent" in found.sentence


def test_the_group_with_the_oldest_open_call_is_the_cause():
    """Rank 2 waits for rank 3 in their own group; ranks 0 and 1 wait for both in the one of all."""
    groups = {"0": [0, 1, 2, 3], "5": [2, 3]}
    everyone = [state(r, [call(9, done=False)], groups=groups) for r in (0, 1)]
    waits = state(2, [call(8), call(3, done=False, group="5")], groups=groups)
    absent = state(3, [call(8)], groups=groups, part="forward")
    found = verdict(*everyone, waits, absent)
    assert (found.kind, found.group, found.ranks) == ("not_entered", "5", [3])


def test_ranks_that_wait_for_each_other_in_two_groups():
    """Rank 1 has skipped the call of group 2, and waits in the next one of group 0; rank 0 waits in the skipped one."""
    groups = {"0": [0, 1], "2": [0, 1]}
    step = (("2", [[1]]), ("0", [[272]]))
    before = [replace(call(1 + n // 2, sizes=step[n % 2][1], group=step[n % 2][0]), created_ns=n) for n in range(20)]
    waits = replace(call(11, sizes=[[1]], group="2", done=False), created_ns=21)
    ahead = replace(call(11, sizes=[[272]], group="0", done=False), created_ns=20)  # noted earlier, by its clock
    found = verdict(state(0, [*before, waits], groups=groups), state(1, [*before, ahead], groups=groups))
    assert (found.kind, found.ranks, found.group, found.seq) == ("not_entered", [1], "2", 11)
    found = verdict(state(0, [*before, ahead], groups=groups), state(1, [*before, waits], groups=groups))
    assert (found.kind, found.ranks, found.group, found.seq) == ("not_entered", [0], "2", 11)


def message(kind: str, peer: int, *, done=False):
    return Call(group="0", seq=0, name=f"nccl:{kind}", done=done, created_ns=9000, message=True, peer=peer)


def test_in_a_pipeline_the_stage_is_named_for_which_its_neighbours_wait():
    """Rank 1 sleeps: rank 0 waits to send to it, rank 2 to receive from it, and rank 3 for rank 2."""
    asleep = state(1, [message("recv", 0, done=True)], frame="/home/u/train.py:30 in fetch", kernel="hrtimer_nanosleep")
    found = verdict(
        state(0, [message("send", 1)]), asleep, state(2, [message("recv", 1)]), state(3, [message("recv", 2)])
    )
    assert (found.kind, found.ranks) == ("not_entered", [1])
    assert found.sentence == (
        "Rank 1 does not take part in a message: rank 0 waits to send to rank 1, rank 2 waits to receive from rank 1; "
        "in the backward, at train.py:30 in fetch, asleep."
    )
    # where the peers are not known, whoever does not communicate is named, and nobody else
    frame = "/usr/lib/torch/distributed/distributed_c10d.py:2753 in send"
    ranks = [state(r, [], recorder=False, part="before", frame=frame) for r in (0, 2, 3)]
    away = state(1, [], recorder=False, part="before", frame="/home/u/train.py:30 in fetch")
    found = verdict(ranks[0], away, *ranks[1:])
    assert (found.kind, found.ranks) == ("waits_elsewhere", [1])
    ranks[0] = state(0, [], recorder=False, part="before", frame=frame.replace("send", "recv"))
    assert verdict(*ranks, world=3).ranks == []


def test_ranks_that_both_wait_to_receive_from_each_other():
    found = verdict(state(0, [message("recv", 1)]), state(1, [message("recv", 0)]), state(2, [message("recv", 1)]))
    assert (found.kind, found.ranks) == ("order", [0, 1])
    assert found.sentence == (
        "Ranks 0, 1 wait for each other: rank 0 waits to receive from rank 1; rank 1 waits to receive from rank 0."
    )
    # both are in the same message, and all others wait for them
    both = [state(0, [call(1), message("send", 1)]), state(1, [call(1), message("recv", 0)])]
    found = verdict(*both, state(2, [call(1), call(2, done=False)], world=3))
    assert (found.kind, found.ranks) == ("not_entered", [0, 1])


def test_ranks_that_wait_for_each_other_in_a_group_that_is_new_to_them():
    """Rank 1 has skipped the first call of group 1; nothing shows whether it was due."""
    groups = {"0": [0, 1, 2], "1": [0, 1]}
    inner = replace(call(1, done=False, group="1"), created_ns=5000)
    outer = [call(n) for n in range(1, 5)] + [call(5, sizes=[[7]], done=False)]
    found = verdict(
        state(0, [*outer[:4], inner], groups=groups), state(1, outer, groups=groups), state(2, outer, groups=groups)
    )
    assert (found.kind, found.ranks) == ("order", [0, 1])
    assert "rank 0 waits for rank 1 in all_reduce number 1 of group 1 ([32] Float)" in found.sentence
    assert "rank 1 waits for rank 0 in all_reduce number 5 of group 0 ([7] Float)" in found.sentence


def test_only_who_waits_for_nobody_is_named():
    """Rank 1 receives from rank 0, which sleeps; rank 2 waits for both in a collective."""
    waits = state(1, [call(1), message("recv", 0)])
    found = verdict(state(0, [call(1)]), waits, state(2, [call(1), call(2, done=False)], world=3))
    assert (found.kind, found.ranks, found.seq) == ("not_entered", [0], 2)


def test_a_broadcast_of_different_roots():
    one, other = (replace(call(5, "broadcast", done=False), root=root) for root in (0, 1))
    left = state(2, [call(5, "broadcast"), call(6, done=False)], world=3)  # it has what it waited for
    found = verdict(state(0, [one], world=3), state(1, [other], world=3), left)
    assert (found.kind, found.ranks, found.seq) == ("kinds", [0, 1], 5)
    assert "rank 1 calls broadcast of [32] with rank 1 as its root" in found.sentence
    other_call = state(1, [call(5, done=False)], world=3)  # the root is of no interest then
    assert "rank 0 calls broadcast of [32]" in verdict(state(0, [one], world=3), other_call).sentence
    assert "root" not in verdict(state(0, [one], world=3), other_call).sentence
    unknown = [state(r, [call(5, "broadcast", done=False)], world=3) for r in (0, 1)]
    found = verdict(*unknown, left)
    assert (found.kind, found.ranks) == ("all_in", [])
    assert "does not end on ranks 0, 1: they may have named different roots" in found.sentence


def test_a_rank_that_waits_for_its_compiler_does_not_stand_still():
    waits = state(0, [call(2, done=False)])
    found = verdict(waits, state(1, [call(1)], others_s=3.5, kernel="do_wait"))
    assert (found.kind, found.ranks) == ("long", [1])
    assert "while its other threads or processes that it started work" in found.sentence
    found = verdict(waits, state(1, [call(1)], kernel="do_wait"))
    assert (found.kind, found.ranks) == ("not_entered", [1])
    assert found.sentence.endswith("waiting for a process that it has started.")


def test_who_waits_for_a_message_of_an_unknown_peer_is_not_accused():
    message = Call(group="0", seq=0, name="python:message", done=False, created_ns=9, message=True)
    found = verdict(
        state(0, [call(1), message], frame="train.py:30 in exchange"),
        state(1, [call(1), call(2, done=False)]),
        state(2, [call(1), call(2, done=False)]),
    )
    assert (found.kind, found.ranks) == ("order", [])
    assert found.sentence.startswith("Rank 0 waits for a message whose other end is not known, and others wait for it")
    assert "Rank 0 has not entered all_reduce number 2" in found.why[0]
    # AND with a known peer both are told, since either may have left out a call
    found = verdict(
        state(0, [call(1), replace(message, name="python:recv", peer=1)]), state(1, [call(1), call(2, done=False)])
    )
    assert (found.kind, found.ranks) == ("order", [0, 1])


def test_what_is_said_of_a_rank_that_does_not_answer():
    waits = state(0, [call(2, done=False)])
    silent = RankState(rank=1, pid=101, state="S", steps=30, kernel="wait_for_partner")
    found = verdict(waits, silent)
    assert (found.kind, found.ranks) == ("not_entered", [1])
    assert found.sentence.endswith("does not answer and waits in native code that keeps Python's lock, opening a FIFO.")
    assert "0 calls" not in "".join(found.why)  # nothing is known of them
    assert verdict(waits, replace(silent, state="R", cpu_s=4.0, kernel="")).kind == "long"


def test_a_stopped_rank_and_one_that_is_gone_are_seen_from_outside():
    waits = state(0, [call(2, done=False)])
    found = verdict(waits, RankState(rank=1, pid=101, state="T", idle_s=70))
    assert (found.kind, found.ranks, found.next) == ("stopped", [1], "Continue it: kill -CONT 101")
    assert verdict(waits, RankState(rank=1, pid=101, state="", idle_s=70)).kind == "gone"


def test_what_advances_does_not_stand_still():
    waits = state(0, [call(2, done=False)])
    found = verdict(waits, state(1, [call(1)], advances=True, frame="train.py:50 in evaluate"))
    assert (found.kind, found.ranks) == ("long", [1])
    assert "Rank 1 goes on, in the backward, at train.py:50 in evaluate" in found.sentence
    # two different calls are a fault, whoever still moves
    other = state(1, [call(2, "broadcast", done=False)], advances=True)
    assert verdict(waits, other).kind == "kinds"


def test_without_a_record_of_calls_the_places_tell():
    ranks = [state(r, [], recorder=False, frame="train.py:9 in step") for r in range(3)]
    found = verdict(*ranks, state(3, [], recorder=False, part="before", frame="train.py:3 in load"))
    assert (found.kind, found.ranks) == ("waits_elsewhere", [3])
    # of two ranks nobody is the odd one
    assert verdict(ranks[0], state(1, [], recorder=False, frame="train.py:3 in load")).ranks == []
    silent = RankState(rank=3, pid=103, state="S", idle_s=70)
    found = verdict(*ranks, silent)
    assert (found.kind, found.ranks) == ("waits_elsewhere", [3])
    assert found.sentence == "Rank 3 does not answer and waits in native code that keeps Python's lock."
    assert verdict(*ranks, replace(silent, state="R", cpu_s=4)).kind == "long"


def test_ranks_that_were_not_asked_are_reported():
    found = verdict(state(0, [call(2, done=False)], world=4), state(1, [call(1)], world=4), world=4)
    assert found.ranks == [1]
    assert found.why[-1] == "2 of 4 ranks were not asked; nothing is known of them."
    assert why_stuck([]) is None


def starting(rank: int, stage: str, frame: str = "", **more) -> RankState:
    """A rank without a step, which cannot answer."""
    found = RankState(rank=rank, pid=100 + rank, state="S", stage=stage, idle_s=310.0)
    if frame:
        found.stacks = [ThreadStack(name="MainThread", training=True, frames=[frame])]
    return replace(found, **more)


def test_a_rank_that_does_not_come_to_the_process_group_is_named():
    late = starting(1, "began", "/home/u/train.py:8 in read_index")
    found = verdict(starting(0, "rendezvous"), late, starting(2, "rendezvous"))
    assert (found.kind, found.ranks, found.stepped) == ("not_entered", [1], False)
    assert found.sentence == (
        "Rank 1 has not called init_process_group, in which ranks 0, 2 wait: before init_process_group, at train.py:8 "
        "in read_index."
    )
    found = verdict(starting(0, "rendezvous"), replace(late, cpu_s=3.9))
    assert (found.kind, found.ranks) == ("long", [1])


def test_ranks_that_were_never_seen_are_not_named():
    found = verdict(starting(0, "rendezvous"), starting(1, "rendezvous"), world=4)
    assert (found.kind, found.ranks) == ("not_entered", [])
    assert "wait in init_process_group for 2 of 4 ranks, of which nothing was seen" in found.sentence


def test_ranks_that_have_all_come_and_do_not_meet():
    found = verdict(starting(0, "rendezvous"), starting(1, "rendezvous"))
    assert (found.kind, found.ranks) == ("all_in", [])
    assert "do not find each other" in found.sentence


def test_a_rank_that_has_ended_before_the_others_meet():
    found = verdict(starting(0, "rendezvous"), starting(1, "began", state="Z"))
    assert (found.kind, found.ranks) == ("gone", [1])


def test_a_rank_that_does_not_come_to_the_first_collective():
    found = verdict(
        state(0, [call(1, "all_gather", done=False)], part="", steps=0, stage="group"),
        state(1, [], part="", steps=0, stage="group", frame="/home/u/train.py:8 in load_a_model"),
    )
    assert (found.kind, found.ranks) == ("not_entered", [1])
    assert found.sentence.endswith("in which rank 0 waits: before its first step, at train.py:8 in load_a_model.")


def test_position_of_a_stopped_rank_by_external_stacks():
    stopped = RankState(rank=1, pid=101, state="T", steps=30)
    stopped.stacks = [ThreadStack(name="MainThread", training=True, frames=["/home/u/train.py:30 in main"])]
    found = verdict(state(0, [call(1, done=False)]), stopped)
    assert (found.kind, found.ranks) == ("stopped", [1])
    assert found.why[0] == "Rank 1: does not answer, at train.py:30 in main."

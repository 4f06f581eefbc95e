"""The helper of a node. It does all work on the run directory, so that no process of the job ever waits for it.

It has two threads. The *store thread* claims the run directory, gathers what the ranks announce and finishes the run;
each of its steps may hang with the store. The *main thread* uses the node's own disk only: it drains the rings of step
times, notices the end of the job or of the launcher, and ends the process when the store does not answer in time.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rankscope import own_process
from rankscope.between.live import read_live
from rankscope.errors import RankscopeError, RunDirError
from rankscope.node.finish import finish_run, is_head, nodes_of
from rankscope.node.gathering.disk_limits import DiskLimits
from rankscope.node.gathering.gather import Gatherer, files_of, own_record, recordings_of
from rankscope.node.gathering.holding import Holding
from rankscope.node.gathering.leftovers import discard, later, left_in_words, remove_incomplete, remove_unannounced
from rankscope.node.gathering.placing import Placing
from rankscope.node.gathering.reducing import Reducing
from rankscope.node.gathering.step_log import StepLogDrain
from rankscope.node.health.sampler import HealthWatch
from rankscope.node.kept_traces import keep_chosen, limit_s, was_held
from rankscope.node.manifest import NodeResult
from rankscope.node.messages import Messages
from rankscope.node.mirroring import mirroring_of
from rankscope.node.report import make_report
from rankscope.node.run_claim import claim_run
from rankscope.node.state import NodeState
from rankscope.node.watching.announcements import AnnouncementRelay
from rankscope.node.watching.live import LiveStatus
from rankscope.node.watching.liveness import LiveRanks
from rankscope.node.watching.metrics import as_openmetrics
from rankscope.node.watching.requests import RequestRelay
from rankscope.node.watching.standstill import StandstillWatch, place_answers
from rankscope.records.codec import from_json, to_json
from rankscope.records.rank import RankRecord
from rankscope.records.running.between import SlowPattern
from rankscope.records.running.node_task import HelperMessage, JobEnd, NodeTask
from rankscope.records.spec import AgentSpec, CaptureRequest
from rankscope.rundir.audit import append_action
from rankscope.rundir.claim import NodeClaim
from rankscope.rundir.files import replace_text
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool
from rankscope.stuck.verdict import why_stuck

__all__ = ["Helper"]

T = TypeVar("T")

_POLL_S = 0.2
_LIVE_FILES_PER_S = 20.0
_SELDOM = 5
"""Requests and step logs are handled only every 5th poll, because no rank waits for them."""


class Helper:
    """The work of one helper process.

    Args:
        spool: of this node, with the task and the spec in it.
        messages: the pipe to the launcher.
        commands: descriptor on which the launcher sends the end of the job; end-of-file: the launcher has ended.
    """

    def __init__(self, spool: Spool, messages: Messages, commands: int) -> None:
        self.spool = spool
        self.task = from_json(NodeTask, spool.task.read_bytes())
        self.spec = from_json(AgentSpec, spool.spec.read_bytes())
        self.messages = messages
        self.state = NodeState(spool)
        self._commands = commands
        self._where = mirroring_of(spool, self.task)
        self._step_logs = StepLogDrain(spool, self.state.note)
        self._standstill = StandstillWatch(spool, self.spec.hang_after_s)
        self._live = LiveStatus(spool, self.spec.schedule)
        self._health: HealthWatch | None = None
        self._job_end: JobEnd | None = None
        self._over = threading.Event()
        self._finished = threading.Event()
        self._moved = 0
        self._question = 0
        self._stands = ""
        self._live_due = 0.0

    def run(self) -> None:
        """Work until the run is finished, the job never began, or the time is up."""
        threading.Thread(target=self._store, name="store", daemon=True).start()
        own_process.give_way()
        with contextlib.suppress(RuntimeError):  # no thread can be started: health is left out
            self._health = HealthWatch.begin()
        self._serve()
        waits = 3 if self.task.keep == "suspects" else 2
        deadline = time.monotonic() + waits * self.task.gather_timeout_s + self.task.report_timeout_s + 60
        moved = -1
        while not self._finished.wait(_POLL_S) and time.monotonic() < deadline:
            if moved != self._moved:
                moved = self._moved
                self.messages.send(HelperMessage(kind="alive", done=moved))

    # ------------------------------------------------------------ the main thread: this node alone

    def _serve(self) -> None:
        ranks = LiveRanks(self.spool, joined_only=self.task.ends_with_ranks)
        line, turn = b"", 0
        while self._job_end is None:
            ready, _, _ = select.select([self._commands], [], [], _POLL_S)
            if ready:
                part = os.read(self._commands, 4096)
                line += part
                if not part or b"\n" in line:
                    self._job_end = _end_in(line) or self._orphaned(ranks)
            if turn % _SELDOM == 0:
                ranks.look()
                self._step_logs.drain()  # logs that cannot be read now are reported at the end
                self._border("looking at the steps", self._look_at_steps)
            turn += 1
        with contextlib.suppress(OSError):
            replace_text(self.spool.job_end, to_json(self._job_end))
        self._step_logs.drain()
        self._border("looking at the last steps", lambda: self._standstill.look_back(*self._step_logs.progress()))
        self._over.set()

    def _orphaned(self, ranks: LiveRanks) -> JobEnd:
        """Handle the loss of the launcher. Its ranks may continue to train, as under torchrun, and are served while
        they do."""
        ranks.look()
        while ranks.alive():
            time.sleep(1)
            self._step_logs.drain()
            self._border("looking at the steps", self._look_at_steps)
            ranks.look()
        if self.spool.process_records() and not self.task.ends_with_ranks:
            self.state.note("the launcher was killed; its node helper finished the run")
        return JobEnd()

    # ------------------------------------------------------------ the store thread: the run directory

    def _store(self) -> None:
        try:
            self.messages.send(HelperMessage(kind="alive"))
            granted = self._claim()  # at the job's own priority, since its launch waits for this
            own_process.give_way()
            placing = self._placing(granted) if granted is not None else None
            if granted is None or placing is None:
                self._keep()
            else:
                self._gather_and_finish(granted, placing)
        except BaseException as error:  # unforeseen: the next helper begins with what is on the disk
            self.state.note(f"a node helper failed: {type(error).__name__}: {error}")
            traceback.print_exc()
            os._exit(1)
        self.messages.send(HelperMessage(kind="done"))
        self._finished.set()

    def _claim(self) -> NodeClaim | None:
        """Claim the run directory; None if it is refused, or if the job has ended before its store answered."""
        task, spool = self.task, self.spool
        if (earlier := self.state.claimed()) is not None:
            self.messages.send(HelperMessage(kind="claimed", text=task.store or earlier.run_dir))
            return earlier
        try:
            granted = claim_run(spool, task, self._where)
        except (RankscopeError, OSError) as error:
            self.state.note(str(error))
            self.messages.send(HelperMessage(kind="refused", text=str(error)))
            return None
        self.state.claims(granted)
        self.messages.send(HelperMessage(kind="claimed", text=task.store or granted.run_dir))
        return granted

    def _keep(self) -> None:
        """Keep all that is recorded in the spool, because nothing may be placed."""
        self._over.wait()
        remove_unannounced(self.spool)
        if discard(self.spool, step_logs=True):
            self.messages.send(HelperMessage(kind="gathered"))
        else:
            why = "; ".join(self.state.notes()) or "the run directory could not be used"
            self.messages.send(HelperMessage(kind="gathered", text=left_in_words(self.spool, {"": why})))

    def _placing(self, granted: NodeClaim) -> Placing | None:
        """Return what places files; None if they must be encrypted and cannot be: nothing may leave this disk then."""
        try:
            return Placing(RunDir(Path(granted.run_dir)), self.task.encrypt, granted.node)
        except RankscopeError as error:
            self.state.note(f"{granted.node}: nothing was placed, as it was to be encrypted: {error}")
            return None

    def _gather_and_finish(self, granted: NodeClaim, placing: Placing) -> None:
        run_dir = RunDir(Path(granted.run_dir))
        limits = DiskLimits(self.task.leave_free_bytes, self.task.most_bytes)
        reducing = Reducing(
            self.spool, run_dir, granted.node, placing, limits, self.state.note, last_s=self.task.gather_timeout_s / 2
        )
        holding = Holding(self.spool, run_dir, placing, limits, self._has_moved)
        gatherer = Gatherer(
            self.spool, run_dir, complete=self._complete, moved=self._has_moved, placing=placing,
            reducing=reducing if self.task.keep != "all" else None,
            holding=holding if self.task.keep == "suspects" else None, limits=limits,
        )  # fmt: skip
        if not self.state.earlier():
            by = granted.node if self._where.url else ""
            append_action(run_dir, "recorded", self.task.argv, sealed=placing.sealed, by=by)
        requests = RequestRelay(self.spool, run_dir, self.state.note)
        announcements = AnnouncementRelay(self.spool, run_dir)
        tidy = lambda: remove_incomplete(run_dir, self.state.earlier())  # noqa: E731
        self._border("removing what an earlier helper left half written", tidy)
        turn = 0
        while not self._over.wait(_POLL_S):
            if gatherer.gather(last=False):
                self._border("telling the ranks how much was gathered", lambda: self._tell_gathered(run_dir, placing))
                self._where.push()
            if turn % _SELDOM == 0:
                self._border("passing on requests", requests.relay)
                self._border("passing on announcements", announcements.relay)
                self._border("placing answers", lambda: self._place_answers(run_dir, granted.node, placing))
                self._border("placing how the job is doing", lambda: self._place_live(run_dir, granted.node, placing))
            turn += 1
        gatherer.gather(last=True)
        while gatherer.reduces():
            time.sleep(_POLL_S)
            gatherer.gather(last=True)
        self._border("placing answers", lambda: self._place_answers(run_dir, granted.node, placing))
        if self._health is not None:
            self._health.close()
        self._border("placing memory snapshots", gatherer.gather_out_of_memory)
        self._border("comparing the step logs", self._step_logs.compare)
        self._border("placing the step logs", lambda: self._step_logs.finish(run_dir, placing))
        for gone in self._border("looking for unfinished traces", lambda: remove_unannounced(self.spool)) or []:
            self.state.note(f"{granted.node}: {gone}")
        left = {**gatherer.left, **self._step_logs.left}
        words = ""
        if left:
            words = left_in_words(self.spool, left)
            self.state.note(f"{granted.node}: {words}")
        self._border("adding up files", lambda: placing.complete(files_of(run_dir, gatherer.records())))
        own = self._result(granted, gatherer)
        try:
            with contextlib.suppress(RunDirError):  # an earlier helper of this node had placed it
                placing.record(run_dir.node_result(granted.node), to_json(own))
        except OSError as error:
            words = words or f"{self.spool.path} stays: {granted.node} could not write its result: {error.strerror}"
        if not self._where.push(last=True):
            words = words or f"{self._where.left}; {self.spool.path} stays, {later(self.spool)}"
        self.messages.send(HelperMessage(kind="gathered", text=words))
        head = self._border("reading the claims", lambda: is_head(own, granted.node, nodes_of(run_dir)))
        if head is False:
            self.messages.send(HelperMessage(kind="manifest", text="by the node of rank 0"))
            # the traces that this node retains must not be removed before the decision
            keeping = HelperMessage(kind="keeping", total=limit_s(self.task, head=False))
            self.messages.send(keeping if own.held else HelperMessage(kind="done"))
        self._finish(granted, own, words, gatherer, holding)

    def _finish(self, granted: NodeClaim, own: NodeResult, left: str, gatherer: Gatherer, holding: Holding) -> None:
        run_dir, task = RunDir(Path(granted.run_dir)), self.task
        waiting = lambda text: self.messages.send(HelperMessage(kind="waiting", text=text))  # noqa: E731
        lacking = lambda text: self.messages.send(HelperMessage(kind="lacking", text=text))  # noqa: E731
        report = None
        try:
            marker, pause = self.spool.path / "writes_manifest", self._where.pause
            self._where.pull()
            wrote = finish_run(task, self.spec, granted, own, marker, waiting=waiting, tell=lacking, pause=pause)
        except (OSError, RankscopeError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            text = f"{run_dir.manifest} could not be written: {why}; {self.spool.path} stays, {later(self.spool)}"
            self.messages.send(HelperMessage(kind="lacking", text=text))
            return
        if wrote:
            self.messages.send(HelperMessage(kind="manifest"))
            if task.encrypt:
                makes = f"`rankscope analyze {task.store or run_dir.path} --identity KEY` makes the report"
                self.messages.send(HelperMessage(kind="lacking", text=f"the run is encrypted: {makes}"))
            elif task.report:
                self._where.push(last=True)
                self._where.pull("")
                report = make_report(run_dir, task, self.messages)
        else:
            self.messages.send(HelperMessage(kind="manifest", text="by another node"))
        if task.keep == "suspects" and (wrote or was_held(run_dir, own)):
            self.messages.send(HelperMessage(kind="keeping", total=limit_s(task, head=wrote)))
            of_node = (task, self.spec, granted, own, gatherer, holding)
            note = self._border("keeping traces", lambda: keep_chosen(*of_node, report, head=wrote, pause=pause))
            left = left_in_words(self.spool, holding.left) if holding.left or note is None else left
            for text in [*(note or []), *([left] if left else [])]:
                self.messages.send(HelperMessage(kind="lacking", text=text))
        if not self._where.push(last=True):
            self.messages.send(HelperMessage(kind="lacking", text=f"{self._where.left}; {later(self.spool)}"))
        elif not left:
            self._where.close()
            discard(self.spool)

    def _result(self, granted: NodeClaim, gatherer: Gatherer) -> NodeResult:
        processes = [process for path in self.spool.process_records() if (process := own_record(path)) is not None]
        unread = len(self.spool.process_records()) - len(processes)
        if unread:
            self.state.note(f"{granted.node}: {unread} process record(s) could not be read")
        restarts = len(self.state.earlier())
        if restarts:
            self.state.note(
                f"{granted.node}: the node helper was started again {restarts} time(s); "
                "samples of health and load before that are missing"
            )
        exit_code = self._job_end.exit_code if self._job_end is not None else None
        return NodeResult(
            node=granted.node, host=socket.gethostname(), lives=processes, records=gatherer.records(),
            notes=[*self.state.notes(), *(self._health.notes if self._health is not None else [])], exit_code=exit_code,
            held=len(self.spool.holds()), files=gatherer.placing.sums,
        )  # fmt: skip

    def _look_at_steps(self) -> None:
        counts, ends = self._step_logs.progress()
        self._standstill.look(counts, ends)
        if (found := self._standstill.found) is not None and not found.asked:
            verdict = None if found.resumed else why_stuck([found])
            self._stands = "" if verdict is None else verdict.sentence
        self._live.look(counts, self._stands)
        if (wanted := self._live.pattern) is not None:
            self._live.pattern = None
            self._ask_for_window(*wanted)
        if self._live.found is not None:
            with contextlib.suppress(OSError):  # the node's own disk is full: the line is omitted
                replace_text(self.spool.live, to_json(self._live.found, indent=None))

    def _ask_for_window(self, attempt: int, pattern: SlowPattern) -> None:
        """Ask rank 0 to open a window over the next of these steps, if the budget allows it; it informs the other
        nodes."""
        request = CaptureRequest(
            name="pattern", steps=self.spec.schedule.active, warmup=1, at=pattern.first if pattern.period else 0,
            every=pattern.period or 0,
        )  # fmt: skip
        with contextlib.suppress(OSError):  # the node's own disk is full: the window is omitted
            replace_text(self.spool.notice(attempt, "pattern"), to_json(request))

    def _place_live(self, run_dir: RunDir, node: str, placing: Placing) -> None:
        """Place the current status of the job in the run directory."""
        found, self._live.found = self._live.found, None
        if found is None or time.monotonic() < self._live_due:
            return
        # Limits the files that all nodes of a job write together per second, independent of their number.
        nodes = found.world_size / max(len(found.ranks), 1)
        self._live_due = time.monotonic() + nodes / _LIVE_FILES_PER_S
        found.node = node
        placing.folder(run_dir.live_folder)
        placing.passing(run_dir.live(node), to_json(found, indent=None))
        self._where.push_new_attempt(found)
        if self.task.metrics and not placing.sealed and any(rank.rank == 0 for rank in found.ranks):
            replace_text(run_dir.metrics, as_openmetrics(read_live(run_dir)))

    def _place_answers(self, run_dir: RunDir, node: str, placing: Placing) -> None:
        """Place the ranks' answers in the run directory, and check whether a user asks."""
        found, self._standstill.found = self._standstill.found, None
        if found is not None:
            placing.folder(run_dir.stuck_folder)
            found.node = node
            place_answers(self.spool.answers, found)  # stays readable here, even if the placed copy is encrypted
            with contextlib.suppress(FileNotFoundError):  # belongs to a standstill that an earlier helper had not seen
                placing.passing(run_dir.stuck(node), self.spool.answers.read_text(encoding="utf-8"))
        with contextlib.suppress(OSError):
            asked = run_dir.stuck_question.stat().st_mtime_ns
            if asked != self._question:
                self._question, self._standstill.wanted = asked, True

    def _tell_gathered(self, run_dir: RunDir, placing: Placing) -> None:
        placed = [record for path in self.spool.placed_records() if (record := own_record(path)) is not None]
        files = [*{placing.name(path) for path in recordings_of(run_dir, placed)}, *self.spool.holds()]
        replace_text(self.spool.gathered, f"{sum(path.stat().st_size for path in files) / 1e6:.3f}")

    def _complete(self, record: RankRecord) -> None:
        if self._health is not None:
            self._health.attach(record)

    def _has_moved(self, size: int) -> None:
        self._moved += size

    def _border(self, what: str, work: Callable[[], T]) -> T | None:
        """Run one unit of work. An error in it is noted once, and does not affect other units."""
        try:
            return work()
        except Exception as error:
            self.state.note(f"{what} failed: {type(error).__name__}: {error}")
            return None


def _end_in(line: bytes) -> JobEnd | None:
    try:
        return from_json(JobEnd, line)
    except ValueError:
        return None  # the launcher died within the line, or before it

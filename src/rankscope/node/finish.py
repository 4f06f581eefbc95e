"""Finish a run on one node: its result, the wait for the other nodes, and run.json."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rankscope import __version__
from rankscope.errors import ForeignFileError, RunDirError
from rankscope.node.gathering.placing import Placing
from rankscope.node.gathering.signing import load_signing_key, sign
from rankscope.node.manifest import NodeResult, build_manifest
from rankscope.records.codec import to_json
from rankscope.records.manifest import RunManifest
from rankscope.records.rank import RankRecord
from rankscope.records.running.hang import HangVerdict
from rankscope.records.running.node_task import NodeTask
from rankscope.records.spec import AgentSpec
from rankscope.rundir.claim import NodeClaim
from rankscope.rundir.foreign import read_foreign
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit
from rankscope.rundir.sealing import sealed_name
from rankscope.stuck.files import read_answers
from rankscope.stuck.verdict import why_stuck

__all__ = ["finish_again", "finish_run", "is_head", "nodes_of", "result_of", "small_files", "stood_still"]

_POLL_S = 0.1
_MOST_SMALL_BYTES = 1 << 24
"""Largest size of a request, an announcement or a result, in bytes; a larger file is not one."""
_UNSIGNED = "run.json is not signed"
_SETTLES_S = 5.0
"""Time for the head to write its manifest after it has seen the last result."""


def finish_run(
    task: NodeTask,
    spec: AgentSpec,
    claim: NodeClaim,
    own: NodeResult,
    marker: Path,
    *,
    waiting: Callable[[str], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait for the other nodes and write run.json, on the node that hosted rank 0 or, if that is lost, on another.

    Args:
        task: of this node.
        spec: specification of the ranks.
        claim: this node's place in the run.
        own: this node's result, already in the run directory.
        marker: a file of the spool that tells a later helper that this node writes the manifest.
        waiting: called with what is waited for.
        tell: called with errors that occur too late for run.json.
        pause: sleeps for the given number of seconds.
        clock: in seconds, monotonic.

    Returns:
        Whether this node has written the manifest; otherwise another one has.

    Raises:
        OSError: the run directory cannot be read or written.
    """
    run_dir = RunDir(Path(claim.run_dir))
    if marker.exists() and run_dir.ended:
        if task.signing_key is not None and not run_dir.signature.exists():
            tell(f"{_UNSIGNED}: the helper that wrote it ended before it could")
        return True
    deadline = clock() + task.gather_timeout_s
    if not is_head(own, claim.node, nodes_of(run_dir)):
        # The head waits for results until the deadline and then writes. A head that is lost never does.
        while clock() < deadline + _SETTLES_S:
            if run_dir.ended:
                return False
            waiting("waiting for the node of rank 0 to write run.json")
            pause(_POLL_S)
        alive = [node for node in nodes_of(run_dir) if node == claim.node or _left(run_dir, node)]
        for _ in range(alive.index(claim.node)):  # one after the other, so that only one writes
            pause(_SETTLES_S)
            if run_dir.ended:
                return False
    results, missing = {claim.node: own}, set(nodes_of(run_dir)) - {claim.node}
    while missing:
        for node in sorted(missing):
            if (result := result_of(run_dir, node)) is not None:
                results[node] = result
        missing -= set(results)
        if not missing or clock() >= deadline:
            break
        waiting(f"waiting for {len(missing)} other node(s): {', '.join(sorted(missing)[:4])}")
        pause(_POLL_S)
    notes = [f"node {node} left no result within {task.gather_timeout_s:.0f} s" for node in sorted(missing)]
    placing = Placing(run_dir, task.encrypt, claim.node)
    with contextlib.suppress(RunDirError):
        placing.record(run_dir.agent_spec, to_json(spec))
    small_files(run_dir, placing)
    key = _signing_key(task, notes)
    manifest = _manifest(task, spec, claim, list(results.values()), notes, placing)
    marker.touch()
    try:
        placing.record(run_dir.manifest, to_json(manifest))
    except RunDirError:  # another node wrote it instead, or rank 0 had moved
        marker.unlink()
        return False
    for note in (*notes, *_sign(run_dir, manifest, key)):
        if note.startswith(_UNSIGNED):
            tell(note)
    return True


def _signing_key(task: NodeTask, notes: list[str]) -> Any:
    """Load the key; None if none is configured, or if it cannot be used, which is then a note of the run."""
    if task.signing_key is None:
        return None
    try:
        return load_signing_key(Path(task.signing_key))
    except Exception as error:  # any error of the library: the run matters more than its signature
        notes.append(f"{_UNSIGNED}: {error}")
        return None


def _sign(run_dir: RunDir, manifest: RunManifest, key: Any) -> list[str]:
    """Sign the manifest. A run that cannot be signed stays unsigned; return the notes on that."""
    if key is None:
        return []
    try:
        sign(run_dir, manifest, key)
    except Exception as error:
        return [f"{_UNSIGNED}: its signature could not be written: {error}"]
    return []


def small_files(run_dir: RunDir, placing: Placing) -> None:
    """Add checksums of small files that nodes and users left while the job ran."""
    for pattern in ("agent.json*", "kept.json", "nodes/*.json*", "requests/*.json", "announcements/*.json", "stuck/*"):
        for path in sorted(run_dir.path.glob(pattern)):
            with contextlib.suppress(OSError, ForeignFileError):  # it appears as a file that is not in the manifest
                placing.known(path, hashlib.sha256(read_foreign(path, _MOST_SMALL_BYTES)).hexdigest())


def _left(run_dir: RunDir, node: str) -> bool:
    """Return whether a node has left its result."""
    path = run_dir.node_result(node)
    return path.exists() or sealed_name(path).exists()


def finish_again(task: NodeTask, spec: AgentSpec, claim: NodeClaim, own: NodeResult) -> list[str]:
    """Rewrite run.json from what all nodes have left by now, because the present one lacks what this node had retained.

    Returns:
        Why it is not signed, if it had to be.

    Raises:
        OSError: the run directory cannot be read or written.
    """
    run_dir = RunDir(Path(claim.run_dir))
    others = {node: result_of(run_dir, node) for node in nodes_of(run_dir) if node != claim.node}
    results = [own, *(result for result in others.values() if result is not None)]
    notes = [f"node {node} left no result" for node, result in others.items() if result is None]
    key = _signing_key(task, notes)
    placing = Placing(run_dir, task.encrypt, claim.node)
    with contextlib.suppress(RunDirError):
        placing.record(run_dir.agent_spec, to_json(spec))
    small_files(run_dir, placing)
    manifest = _manifest(task, spec, claim, results, notes, placing)
    run_dir.signature.unlink(missing_ok=True)  # that of the earlier run.json
    placing.again(run_dir.manifest, to_json(manifest))
    return [note for note in (*notes, *_sign(run_dir, manifest, key)) if note.startswith(_UNSIGNED)]


def _manifest(
    task: NodeTask,
    spec: AgentSpec,
    claim: NodeClaim,
    results: Sequence[NodeResult],
    notes: Sequence[str],
    placing: Placing,
) -> RunManifest:
    manifest = build_manifest(
        results,
        run_id=claim.run_id,
        argv=task.argv,
        config=task.config,
        schedule=spec.schedule,
        versions=_versions(results),
        notes=notes,
    )
    manifest.hang = stood_still(RunDir(Path(claim.run_dir)))
    manifest.files = dict(sorted({**{k: v for r in results for k, v in r.files.items()}, **placing.sums}.items()))
    return manifest


def stood_still(run_dir: RunDir) -> HangVerdict | None:
    """Return why the job stood still, if it did; answers that a user asked for during the run do not count."""
    return why_stuck([node for node in read_answers(run_dir) if not node.asked])


def is_head(own: NodeResult, node: str, nodes: Sequence[str]) -> bool:
    """Return whether this node hosted rank 0 in its last attempt; for a job that never started, whether it is the first
    node."""
    if own.lives:
        last = max(process.attempt for process in own.lives)
        return any(process.rank == 0 and process.attempt == last for process in own.lives)
    return list(nodes[:1]) == [node]


def nodes_of(run_dir: RunDir) -> list[str]:
    """Return the names of the nodes that have claimed a place in a run."""
    return sorted(path.name.removesuffix(".claim.json") for path in run_dir.nodes.glob("*.claim.json"))


def result_of(run_dir: RunDir, node: str) -> NodeResult | None:
    """Return the result of a node; None if there is none yet."""
    path = run_dir.node_result(node)
    if sealed_name(path).exists():  # the owner of the key combines the nodes' results
        return NodeResult(node=node, host=node, lives=[], records=[])
    if not path.exists():
        return None
    try:
        return read_record(NodeResult, path, run_limit(run_dir))
    except ForeignFileError as error:
        return NodeResult(node=node, host=node, lives=[], records=[], notes=[f"the result of {node} is none: {error}"])


def _versions(results: Sequence[NodeResult]) -> dict[str, str]:
    torch = {process.torch_version for process in _processes(results) if process.torch_version}
    versions = {"rankscope": __version__, "python": platform.python_version(), "torch": ", ".join(sorted(torch))}
    for name in ("HolisticTraceAnalysis", "hydra-core"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {key: value for key, value in versions.items() if value}


def _processes(results: Sequence[NodeResult]) -> list[RankRecord]:
    return [process for result in results for process in result.lives]

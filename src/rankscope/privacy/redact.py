"""Copy a run directory, a folder of traces or a trace, to be shared; with a key that must not be shared."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.errors import ConfigError, ForeignFileError, RankscopeError, RunDirError, TraceError
from rankscope.privacy.files.paths import clean_path
from rankscope.privacy.files.records import redact_record
from rankscope.privacy.files.snapshots import redact_snapshot
from rankscope.privacy.files.step_logs import redact_step_log
from rankscope.privacy.files.traces import redact_trace
from rankscope.privacy.naming.policy import Policy
from rankscope.privacy.naming.tokens import Tokens, load_key, new_tokens, save_key
from rankscope.privacy.naming.words import Words
from rankscope.privacy.places import with_place
from rankscope.records.codec import to_json
from rankscope.records.manifest import RunManifest
from rankscope.records.rank import RankRecord
from rankscope.records.report import ClusterReport
from rankscope.rundir.audit import AUDITS
from rankscope.rundir.files import write_new
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit
from rankscope.trace.files.find import Candidate, Found, find_traces
from rankscope.trace.files.load import load_traces, process_count, weight
from rankscope.worker_pool import worker_pool

__all__ = ["Copy", "redact"]

Progress = Callable[[int, int, str], None]
_RECORD = re.compile(r"attempt_\d{1,6}/(?:window_\d{1,6}/)?rank_\d{1,7}\.json\Z", re.ASCII)
_SNAPSHOT = re.compile(r"attempt_\d{1,6}/(?:window_\d{1,6}/)?rank_\d{1,7}(?:\.oom)?\.memory\.pickle\Z", re.ASCII)
_STEP_LOG = re.compile(r"attempt_\d{1,6}/pulse/rank_\d{1,7}\.bin\.gz\Z", re.ASCII)
_MADE_AGAIN = re.compile(r"report/|.*\.parquet\Z")
"""Files that the copy, or its reader, makes anew."""
_PASSING = re.compile(
    rf"agent\.json|nodes/|requests/|announcements/|live/|stuck/|metrics\.prom\Z|{AUDITS}\Z|run\.json\.sig\Z"
)
"""Files on how the run was started, monitored and signed."""


@dataclass(slots=True)
class Copy:
    """Result of a redaction."""

    output: Path
    key: Path
    files: int = 0
    text_bytes: int = 0
    """Size of the traces, uncompressed."""
    tokens: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    """File of the original, below its folder -> why it is not in the copy."""
    report: ClusterReport | None = None
    no_report: str | None = None
    """Why there is no report."""


def redact(
    source: Path,
    output: Path,
    policy: Policy,
    *,
    key: Path | None = None,
    report: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Copy:
    """Write a copy without identifying content, and the key for its owner.

    Args:
        source: a run directory, a folder or a trace.
        output: a folder that does not exist yet, or is empty.
        policy: what is kept.
        key: file of an earlier copy, or for the new key; None for a file beside ``output``.
        report: whether the copy gets a report of its own.
        workers: number of processes; None chooses.
        progress: called before the first and after each trace, with bytes done and in total.

    Raises:
        ConfigError: ``source`` does not exist, or ``output`` or ``key`` cannot be used.
        RunDirError: the copy cannot be written.
        TraceError: there is nothing to copy.
    """
    key_path, tokens = _prepared(source, output, key)
    copy = Copy(output, key_path)
    try:
        output.mkdir(parents=True, exist_ok=True)
        _write(source, copy, tokens, policy, workers, progress)
        copy.tokens = len(tokens.made)
        save_key(key_path, tokens)
        if report:
            _report(copy)
    except OSError as error:
        raise RunDirError(f"{output} cannot be written ({error.strerror or error}); name another -o") from error
    return copy


def _prepared(source: Path, output: Path, key: Path | None) -> tuple[Path, Tokens]:
    if not source.exists():
        raise ConfigError(f"{source} does not exist; name a run directory, a folder or a trace")
    try:
        taken = output.exists() and (not output.is_dir() or any(output.iterdir()))
    except OSError as error:
        raise RunDirError(f"{output}: {error.strerror}; name another -o") from error
    if taken:
        raise ConfigError(f"-o {output} holds something already; a copy goes into a folder of its own")
    inside = output.resolve()
    if source.is_dir() and inside.is_relative_to(source.resolve()):
        raise ConfigError(f"-o {output} lies in {source}; a copy goes elsewhere")
    path = key or output.absolute().parent / f"{output.absolute().name}.key.json"
    if path.resolve().is_relative_to(inside):
        raise ConfigError(f"--key {path} lies in the copy, and would be passed on with it; put it elsewhere")
    if os.path.lexists(path):
        if key is None:
            raise ConfigError(f"{path} is there already; name it with --key to get the same tokens again, or another")
        return path, load_key(path)
    return path, new_tokens()


def _write(
    source: Path, copy: Copy, tokens: Tokens, policy: Policy, workers: int | None, progress: Progress | None
) -> None:
    found = find_traces([source])
    top = source if source.is_dir() else source.parent
    words = Words(tokens, policy)
    done = {candidate.path for candidate in found.candidates}
    _traces(found, copy, tokens, policy, workers, progress)
    for path in (*found.snapshots, *found.step_logs):
        done.add(path)
        name = path.relative_to(top).as_posix()
        kept, pattern, work = (
            (policy.memory, _SNAPSHOT, _snapshot)
            if path in found.snapshots
            else (policy.step_logs, _STEP_LOG, _step_log)
        )
        if kept == "drop":
            copy.left_out[name] = f"level {policy.level} leaves it out"
        elif not pattern.match(name):
            copy.left_out[name] = "not where a run directory has it"
        else:
            work(path, copy.output / name, copy, name, tokens, policy)
    reasons = {aside.path: aside.reason or aside.status for aside in found.aside}
    for path in _files(source) if source.is_dir() else (source,):
        name = path.relative_to(top).as_posix()
        if path not in done and not _record(RunDir(top), path, name, copy, words):
            copy.left_out.setdefault(name, _why(name) or reasons.get(str(path), "not known"))
    if not copy.files:
        why = "; ".join(sorted(set(copy.left_out.values()))[:3])
        raise TraceError(f"{source} holds nothing that could be copied" + (f": {why}" if why else ""))


def _why(name: str) -> str | None:
    """Return why a file of rankscope itself is not copied; None for any other file."""
    if _MADE_AGAIN.match(name):
        return "made again of the copy"
    return "no analysis reads it" if _PASSING.match(name) else None


def _files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(where, name) for name in sorted(names))


def _traces(
    found: Found, copy: Copy, tokens: Tokens, policy: Policy, workers: int | None, progress: Progress | None
) -> None:
    targets: dict[Candidate, Path] = {}
    for candidate in found.candidates:
        target = copy.output / clean_path(candidate.name, tokens)
        if target in targets.values():  # trace.json and trace.json.gz in one folder
            copy.left_out[candidate.name] = "another trace has its name in the copy"
            continue
        targets[candidate] = target
    sizes = {candidate: weight(candidate.path) for candidate in targets}
    whole, done = sum(sizes.values()), 0
    if progress is not None:
        progress(0, whole, "")
    order = sorted(targets, key=lambda c: -sizes[c])
    count = process_count(workers, [sizes[c] for c in order])
    for candidate, outcome in _redacted(order, targets, tokens, policy, count):
        done += sizes[candidate]
        if isinstance(outcome, str):
            copy.left_out[candidate.name] = outcome
        else:
            size, made = outcome
            tokens.add(made)
            copy.files += 1
            copy.text_bytes += size
        if progress is not None:
            progress(done, whole, candidate.name)


Outcome = tuple[int, dict[str, str]] | str


def _redacted(
    order: list[Candidate], targets: dict[Candidate, Path], tokens: Tokens, policy: Policy, count: int
) -> Iterator[tuple[Candidate, Outcome]]:
    with ExitStack() as stack:
        waiting = list(order)
        if count > 1:
            pool = stack.enter_context(worker_pool(count))
            futures = {pool.submit(_one, c.path, targets[c], tokens.secret, policy): c for c in order}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
                    waiting.remove(futures[future])
            except BrokenProcessPool:  # a worker was killed for its memory: continue here, one after the other
                pass
        for candidate in waiting:
            yield candidate, _one(candidate.path, targets[candidate], tokens.secret, policy)


def _one(source: Path, target: Path, secret: bytes, policy: Policy) -> Outcome:
    tokens = Tokens(secret)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        size = redact_trace(source, target, tokens, policy)
    except TraceError as error:
        return str(error)
    return size, tokens.made


def _snapshot(path: Path, target: Path, copy: Copy, name: str, tokens: Tokens, policy: Policy) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with worker_pool(1) as pool:
            tokens.add(pool.submit(redact_snapshot, path, target, tokens.secret, policy).result())
        copy.files += 1
    except BrokenProcessPool:
        copy.left_out[name] = "it takes more memory or time than a snapshot of its size does"
    except (RankscopeError, LookupError, TypeError, ValueError, AttributeError, MemoryError) as error:
        copy.left_out[name] = f"not a memory snapshot ({type(error).__name__})"


def _step_log(path: Path, target: Path, copy: Copy, name: str, tokens: Tokens, policy: Policy) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        redact_step_log(path, target, Words(tokens, policy))
    except ForeignFileError as error:
        copy.left_out[name] = str(error)
    else:
        copy.files += 1


def _record(run_dir: RunDir, path: Path, name: str, copy: Copy, words: Words) -> bool:
    """Copy a record; return whether the file is one."""
    kind: type[RunManifest | RankRecord]
    if name == run_dir.manifest.name:
        kind = RunManifest
    elif _RECORD.match(name):
        kind = RankRecord
    else:
        return False
    try:
        record = read_record(kind, path, run_limit(run_dir))
    except ForeignFileError as error:
        copy.left_out[name] = str(error)
        return True
    target = copy.output / name
    target.parent.mkdir(parents=True, exist_ok=True)
    write_new(target, to_json(redact_record(record, words)))
    copy.files += 1
    return True


def _report(copy: Copy) -> None:
    """Analyse the copy, so that its report contains only what anyone who has the copy can compute."""
    from rankscope.analysis.pipeline import analyze
    from rankscope.report import write_report

    run_dir = RunDir(copy.output)
    manifest = None
    if run_dir.manifest.is_file():
        manifest = read_record(RunManifest, run_dir.manifest, run_limit(run_dir))
    try:
        made = analyze(load_traces([copy.output], cache=False), manifest)
    except RankscopeError as error:
        copy.no_report = str(error)
        return
    copy.report = with_place(made, copy.output, "")
    write_report(copy.report, run_dir.report)

"""``rankscope diff``, ``rankscope check`` and ``rankscope baseline``."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.cli.parts.audit_log import log_export, note
from rankscope.cli.parts.console import print_utf8, say
from rankscope.cli.parts.sealed import opened_runs, refuse_beside
from rankscope.errors import ConfigError, RunDirError
from rankscope.listing import counted

if TYPE_CHECKING:
    from rankscope.compare.gate import Failure
    from rankscope.compare.sides.side import Side
    from rankscope.records.diff import RunDiff

__all__ = ["UNDECIDED", "WORSE", "baseline_verb", "check_verb", "diff_verb"]

WORSE = 10
"""Exit code: a condition of ``--fail-if`` holds, or a run is slower."""
UNDECIDED = 11
"""Exit code: the runs or conditions cannot be decided."""


def diff_verb(arguments: argparse.Namespace) -> int:
    """Compare each run with the first one, and print the differences. Returns the exit code."""
    from rankscope.compare.compare import compare
    from rankscope.compare.show import DIFF_WRITERS

    if len(arguments.runs) < 2:
        raise ConfigError("diff takes at least two runs: the older one first")
    refuse_beside(_paths(arguments.runs), arguments.output)
    with _sides(arguments.runs, arguments) as (first, *others):
        diffs = [compare(first, other, force=arguments.force, scale=arguments.scale) for other in others]
    if arguments.output is not None:
        _write(arguments.output, DIFF_WRITERS[_format(arguments.output)](diffs))
        log_export(_paths(arguments.runs), arguments.output)
    print_utf8(DIFF_WRITERS[arguments.format](diffs).rstrip("\n"))
    if not arguments.exit_code:
        return 0
    verdicts = {diff.verdict for diff in diffs}
    return WORSE if "slower" in verdicts else UNDECIDED if "not_comparable" in verdicts else 0


def check_verb(arguments: argparse.Namespace) -> int:
    """Check a run against the conditions of ``--fail-if``, and print those that hold. Returns the exit code."""
    from rankscope.compare.compare import compare
    from rankscope.compare.gate import decide, parse

    conditions = [condition for text in arguments.fail_if for condition in parse(text)]
    if not conditions:
        raise ConfigError("check takes a condition, for instance --fail-if 'slower > 5 %' or --fail-if slow_rank")
    if arguments.against is None and (lonely := [c.text for c in conditions if c.needs_base]):
        raise ConfigError(f"--fail-if {lonely[0]!r} takes another run; name it with --against")
    given = [arguments.run, *([arguments.against] if arguments.against is not None else [])]
    with _sides(given, arguments) as (run, *bases):
        diff = compare(bases[0], run, force=arguments.force) if bases else None
    failures = decide(conditions, run.report, diff, force=arguments.force)
    _show_failures(arguments.format, [c.text for c in conditions], failures, diff)
    if any(failure.state == "holds" for failure in failures):
        return WORSE
    return UNDECIDED if failures and not arguments.undecided_ok else 0


@contextlib.contextmanager
def _sides(sources: Sequence[str], arguments: argparse.Namespace) -> Iterator[list[Side]]:
    """Yield the runs and baselines named by ``sources``; decrypted copies exist while the block runs."""
    from rankscope.compare.sources import open_side

    paths = _paths(sources)
    with opened_runs(paths, arguments) as plain:
        there = dict(zip(map(str, paths), plain, strict=True))
        yield [open_side(str(there.get(source, source)), arguments.store, say) for source in sources]


def _paths(sources: Sequence[str]) -> list[Path]:
    """Return the sources that are paths of runs, not baselines."""
    from rankscope.compare.baselines import PREFIX

    return [Path(source) for source in sources if not source.startswith(PREFIX)]


def _show_failures(form: str, conditions: list[str], failures: list[Failure], diff: RunDiff | None) -> None:
    import dataclasses
    import json

    from rankscope.compare.show import DIFF_WRITERS
    from rankscope.compare.show.github import workflow_commands
    from rankscope.compare.show.markdown import failures_list

    if form == "json":
        plain = {
            "conditions": conditions,
            "failures": [dataclasses.asdict(failure) for failure in failures],
            "diff": json.loads(DIFF_WRITERS["json"]([diff])) if diff is not None else None,
        }
        print_utf8(json.dumps(plain, indent=1, ensure_ascii=False))
        return
    body = DIFF_WRITERS["terminal" if form == "terminal" else "markdown"]([diff]) if diff is not None else ""
    if form == "terminal":
        for failure in failures:
            print_utf8(f"{'FAIL' if failure.state == 'holds' else 'UNDECIDED'}  {failure.condition}: {failure.text}")
        if not failures:
            print_utf8(f"PASS  {'; '.join(conditions)}")
        print_utf8(f"\n{body}".rstrip("\n"))
        return
    listed = failures_list(conditions, failures) + body
    if form == "markdown":
        print_utf8(listed.rstrip("\n"))
        return
    print_utf8(workflow_commands(failures).rstrip("\n"))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(listed)
        except OSError as error:
            say(f"the summary of the job could not be written: {error}")


def baseline_verb(arguments: argparse.Namespace) -> int:
    """Add runs to a baseline, show it, or list all. Returns the exit code."""
    from rankscope.compare.baselines import Store, default_store
    from rankscope.compare.history import history
    from rankscope.compare.show import history as pages

    store = Store(arguments.store or default_store())
    if arguments.action == "list":
        counts = {name: count for name in store.names() if (count := store.count(name))}
        for name, count in counts.items():
            print_utf8(f"{name}  {counted(count, 'run')}")
        if not counts:
            say(f"no baselines in {store.url}")
        return 0
    if arguments.name is None:
        raise ConfigError(f"baseline {arguments.action} takes the name of a baseline")
    if arguments.action == "show":
        found = history(arguments.name, store.runs(arguments.name))
        if arguments.output is not None:
            _write(arguments.output, pages.html(found))
        print_utf8(pages.terminal(found).rstrip("\n"))
        return 0
    if not arguments.runs:
        raise ConfigError(f"baseline {arguments.action} takes the runs to accept, the oldest first")
    from rankscope.compare.sides.side import read_side

    if "://" not in store.url:
        refuse_beside(_paths(arguments.runs), Path(store.url), "--store")
    for number, path in enumerate(arguments.runs):
        with opened_runs([Path(path)], arguments) as (plain,):
            run = read_side(plain, say)
        count = store.put(arguments.name, run, _ended(Path(path)), replace=arguments.action == "set" and not number)
        note("exported", [path], to=f"baseline {arguments.name} in {store.url}")
        say(f"{path} is run {count} of baseline {arguments.name} in {store.url}")
    return 0


def _ended(run: Path) -> str:
    """Return when a run ended, by the modification time of its manifest, ISO 8601 in UTC."""
    from rankscope.rundir.layout import RunDir

    known = [path for path in (RunDir(run).manifest, RunDir(run).sealed_manifest, run) if path.exists()]
    return datetime.fromtimestamp(known[0].stat().st_mtime, timezone.utc).isoformat(timespec="seconds")


def _format(path: Path) -> str:
    known = {".html": "html", ".json": "json", ".md": "markdown", ".txt": "terminal"}
    if path.suffix not in known:
        raise ConfigError(f"--output {path}: the name ends in one of {', '.join(known)}")
    return known[path.suffix]


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise RunDirError(f"{path} cannot be written ({error}); name another --output") from error
    say(f"written: {path}")

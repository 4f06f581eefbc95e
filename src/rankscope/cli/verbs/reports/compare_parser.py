"""Arguments of ``diff``, ``check`` and ``baseline``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs, add_identity
from rankscope.cli.verbs.reports.compare import baseline_verb, check_verb, diff_verb

__all__ = ["add_compare"]

_EXIT_CODES = """\
exit codes:
  0   no condition holds (or, of diff without --exit-code, whatever it says)
  10  a condition holds; of diff --exit-code: slower
  11  not decided: not comparable, or no verdict; --undecided-ok makes it 0
"""
_DIFF = f"""\
examples:
  rankscope diff rankscope_runs/run_0001 rankscope_runs/run_0002    the older one first
  rankscope diff baseline:gpt rankscope_runs/run_0002 --output diff.html
  rankscope diff --scale rankscope_runs/on_8 rankscope_runs/on_64   the same job on more ranks

{_EXIT_CODES}"""
_CHECK = f"""\
conditions, separated by commas or given several times:
  slower > 5 %     a step takes longer than in --against by more than that and the noise; also step > 5 %
  step > 120 ms    a step takes longer than that
  launches > 0     more a step than in --against; also syncs, collectives, copies, compilations, bytes > 1 %
  memory > 5 %     the peak of device memory; also memory > 70 GiB
  slow_rank        a rank holds the job back; also host_bound, comm_bound, and any kind of verdict

examples:
  rankscope check rankscope_runs/run_0002 --fail-if slow_rank
  rankscope check rankscope_runs/run_0002 --against baseline:gpt --fail-if 'slower > 5 %, launches > 0'

{_EXIT_CODES}"""
_BASELINE = """\
examples:
  rankscope baseline set gpt rankscope_runs/run_0001 rankscope_runs/run_0002 rankscope_runs/run_0003
  rankscope baseline add gpt rankscope_runs/run_0004     one more that is accepted
  rankscope baseline show gpt --output history.html      its history, and where it changed
  rankscope baseline list --store s3://bucket/baselines
"""


def add_compare(verbs: Verbs) -> None:
    """Add the verbs."""
    shown = argparse.RawDescriptionHelpFormatter
    diff = verbs.add_parser(
        "diff", help="compare runs: what became slower or faster, and why", epilog=_DIFF, formatter_class=shown
    )
    diff.add_argument("runs", nargs="+", metavar="RUN", help="run directories, folders of traces, baseline:NAME")
    _add_common(diff, ("terminal", "json", "markdown", "html"))
    diff.add_argument("--output", type=Path, metavar="FILE", help="also write it there: .html, .json, .md or .txt")
    diff.add_argument("--exit-code", action="store_true", help="end with 10 where a run is slower")
    diff.add_argument(
        "--scale", action="store_true", help="the numbers of ranks may differ, where each rank does the same work"
    )
    diff.set_defaults(verb=diff_verb)

    check = verbs.add_parser(
        "check", help="let a run pass or not, for a pull request", epilog=_CHECK, formatter_class=shown
    )
    check.add_argument("run", metavar="RUN", help="a run directory, a folder of traces or a report.json")
    check.add_argument("--against", metavar="RUN", help="what to compare it with; also baseline:NAME")
    check.add_argument("--fail-if", action="append", default=[], metavar="CONDITION", help="see below")
    check.add_argument("--undecided-ok", action="store_true", help="end with 0 where nothing can be decided")
    _add_common(check, ("terminal", "json", "markdown", "github"))
    check.set_defaults(verb=check_verb)

    baseline = verbs.add_parser(
        "baseline",
        help="runs that others are compared with, and their history",
        epilog=_BASELINE,
        formatter_class=shown,
    )
    baseline.add_argument("action", choices=("set", "add", "show", "list"), help="begin anew, accept more, or look")
    baseline.add_argument("name", nargs="?", help="of the baseline")
    baseline.add_argument("runs", nargs="*", metavar="RUN", help="run directories, the oldest first")
    _add_store(baseline)
    add_identity(baseline)
    baseline.add_argument("--output", type=Path, metavar="FILE", help="of show: also write a page, FILE.html")
    baseline.set_defaults(verb=baseline_verb)


def _add_common(parser: argparse.ArgumentParser, formats: tuple[str, ...]) -> None:
    parser.add_argument("--format", choices=formats, default="terminal", help="what goes to stdout (default: terminal)")
    parser.add_argument("--force", action="store_true", help="judge times although the runs are not comparable")
    _add_store(parser)
    add_identity(parser)


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="URL",
        help="folder or URL of the baselines (default: RANKSCOPE_BASELINES, else rankscope_baselines)",
    )

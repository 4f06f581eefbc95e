"""Table of all verbs, in the order of ``rankscope --help``. To add one, add a module in a folder here and a line."""

from __future__ import annotations

from rankscope.cli.verbs.jobs.capture import add_capture
from rankscope.cli.verbs.jobs.collect import add_collect
from rankscope.cli.verbs.jobs.exec import add_exec
from rankscope.cli.verbs.jobs.gather import add_gather
from rankscope.cli.verbs.jobs.run import add_run
from rankscope.cli.verbs.jobs.stuck import add_stuck
from rankscope.cli.verbs.jobs.sweep import add_sweep
from rankscope.cli.verbs.jobs.top import add_top
from rankscope.cli.verbs.reports.analyze import add_analyze
from rankscope.cli.verbs.reports.compare_parser import add_compare
from rankscope.cli.verbs.reports.export import add_export
from rankscope.cli.verbs.reports.privacy import add_privacy
from rankscope.cli.verbs.reports.reduce import add_reduce
from rankscope.cli.verbs.reports.report import add_report
from rankscope.cli.verbs.reports.runs import add_runs
from rankscope.cli.verbs.reports.timeline import add_timeline
from rankscope.cli.verbs.setup.completion import add_completion
from rankscope.cli.verbs.setup.config import add_config
from rankscope.cli.verbs.setup.demo import add_demo
from rankscope.cli.verbs.setup.doctor import add_doctor

__all__ = ["ADD_VERBS"]

ADD_VERBS = (
    add_run,
    add_exec,
    add_analyze,
    add_reduce,
    add_report,
    add_capture,
    add_stuck,
    add_top,
    add_compare,
    add_sweep,
    add_export,
    add_timeline,
    add_gather,
    add_collect,
    add_privacy,
    add_runs,
    add_doctor,
    add_config,
    add_completion,
    add_demo,
)

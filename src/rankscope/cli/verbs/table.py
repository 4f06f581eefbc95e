"""All verbs, in the order of ``rankscope --help``. A new one is a module beside this and a line here."""

from __future__ import annotations

from rankscope.cli.verbs.analyze import add_analyze
from rankscope.cli.verbs.capture import add_capture
from rankscope.cli.verbs.compare_parser import add_compare
from rankscope.cli.verbs.completion import add_completion
from rankscope.cli.verbs.config import add_config
from rankscope.cli.verbs.demo import add_demo
from rankscope.cli.verbs.doctor import add_doctor
from rankscope.cli.verbs.exec import add_exec
from rankscope.cli.verbs.export import add_export
from rankscope.cli.verbs.gather import add_gather
from rankscope.cli.verbs.privacy import add_privacy
from rankscope.cli.verbs.reduce import add_reduce
from rankscope.cli.verbs.report import add_report
from rankscope.cli.verbs.run import add_run
from rankscope.cli.verbs.runs import add_runs
from rankscope.cli.verbs.stuck import add_stuck
from rankscope.cli.verbs.sweep import add_sweep
from rankscope.cli.verbs.timeline import add_timeline
from rankscope.cli.verbs.top import add_top

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
    add_privacy,
    add_runs,
    add_doctor,
    add_config,
    add_completion,
    add_demo,
)

"""``rankscope exec``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rankscope.cli.parts.arguments import Verbs
from rankscope.cli.parts.console import hold_standard_descriptors, say, show_summary, tell
from rankscope.rundir.spool import disabled

if TYPE_CHECKING:
    from rankscope.config import ToolConfig

__all__ = ["add_exec", "execute"]


def add_exec(verbs: Verbs) -> None:
    """Add the verb."""
    verbs.add_parser("exec", help="run any other launcher or command, record its ranks and report", add_help=False)


def execute(words: Sequence[str]) -> int:
    """Run any command and record its ranks. If rankscope fails, the command runs as without it."""
    from rankscope.launcher.exec.command import become, can_run
    from rankscope.launcher.exec.plan import EXEC_HELP, parse_exec

    arguments = parse_exec(list(words))
    if not arguments.command:
        print(EXEC_HELP, end="")
        return 0
    if disabled(os.environ) or not can_run(arguments.command):
        become(arguments.command, {})  # a command that cannot be started says so, and leaves no run

    from rankscope.launcher.exec.launch import run_as_parent, run_in_rank
    from rankscope.rank_identity import identity_from

    def compose() -> tuple[ToolConfig, dict[str, Any]]:
        from rankscope.compose import compose as composed_of

        composed = composed_of(arguments.overrides, arguments.config_dirs)
        composed.config.refuse_experiment()
        return composed.config, composed.plain

    hold_standard_descriptors()
    argv = ["rankscope", "exec", *words]
    identity = identity_from(os.environ)
    if identity is not None:
        return run_in_rank(arguments, identity, compose, argv, say)
    outcome = run_as_parent(arguments, compose, argv, say)
    if outcome.report is not None:
        show_summary(outcome.report)
    if outcome.folder is not None:
        tell(f"\nReport: {outcome.folder}/report.html")
    outcome.ending.leave()
    return int(outcome.ending.exit_code)

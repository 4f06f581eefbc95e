"""``rankscope demo --then-fix``: find the fault, run without it, and compare the predicted gain with the measured."""

from __future__ import annotations

import argparse
import subprocess
import textwrap

from rankscope.cli.parts.console import print_utf8, say
from rankscope.own_process import command
from rankscope.records.report import ClusterReport
from rankscope.rundir.layout import RUNS_FOLDER
from rankscope.rundir.numbered import next_folder

__all__ = ["MEASURED", "then_fix"]

MEASURED = 160
"""Number of training steps of each run in addition to those that show the fault. They are not recorded, and the gain is
measured by them."""


def then_fix(arguments: argparse.Namespace, settings: tuple[str, ...], steps: int) -> int:
    """Run the demo with its fault and without it, each in a process of its own, and compare the two runs.

    Args:
        arguments: parsed arguments of the demo.
        settings: settings that the fault needs; used in both runs, so that they record the same.
        steps: number of training steps of each run.

    Returns:
        The exit code: that of the first job that failed, else 0.
    """
    folder = next_folder(RUNS_FOLDER, "then_fix", "-S run.dir=")
    for name, fault in (("fault", arguments.fault), ("fixed", "none")):
        words = ["demo", "--fault", fault, "--ranks", str(arguments.ranks), "--steps", str(steps)]
        if arguments.bad_rank is not None:
            words += ["--bad-rank", str(arguments.bad_rank)]
        if arguments.size is not None and fault != "none":
            words += ["--size", str(arguments.size)]
        for setting in (*settings, *arguments.overrides, f"run.dir={folder / name}"):
            words += ["-S", setting]
        log = folder / f"{name}.log"
        say(f"{f'with {fault}' if fault != 'none' else 'and now without it'}; what the job prints goes to {log}")
        with log.open("wb") as output:
            code = subprocess.run(
                command("rankscope", *words), check=False, stdout=output, stderr=subprocess.STDOUT
            ).returncode
        if code:
            say(f"the job ended with exit code {code}; see {log}")
            return code
    from rankscope.compare.compare import compare
    from rankscope.compare.show import DIFF_WRITERS
    from rankscope.compare.sides.side import read_side

    before, after = (read_side(folder / name) for name in ("fault", "fixed"))
    print_utf8(_found(before.report, arguments.fault))
    print_utf8(DIFF_WRITERS["terminal"]([compare(before, after)]).rstrip("\n"))
    return 0


def _found(report: ClusterReport, fault: str) -> str:
    """Return verdict and advice of the first report, and the change made for the second run, as lines."""
    lines = [("Found", report.verdict.sentence)]
    lines += [("Advice", action.text) for action in report.actions[:1]]
    lines.append(("Turned", f"--fault {fault} -> --fault none"))
    return "\n".join(
        textwrap.fill(text, 80, initial_indent=f"{label:15}", subsequent_indent=" " * 15) for label, text in lines
    )

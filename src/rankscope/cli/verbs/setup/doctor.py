"""``rankscope doctor``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs, add_settings

__all__ = ["add_doctor", "doctor_verb"]

_MARK = {"ok": "ok  ", "note": "note", "bad": "BAD "}


def add_doctor(verbs: Verbs) -> None:
    """Add the verb."""
    doctor = verbs.add_parser("doctor", help="look at this node before a job: what would keep it from being recorded")
    add_settings(doctor)
    doctor.add_argument(
        "--hosts", type=int, default=1, metavar="N", help="the same command runs on so many hosts now: wait for them"
    )
    doctor.set_defaults(verb=doctor_verb)


def doctor_verb(arguments: argparse.Namespace) -> int:
    """Check this node before a job. Returns 1 if something would prevent the recording, else 0."""
    from rankscope.compose import compose
    from rankscope.doctor.base import CheckInput
    from rankscope.doctor.table import examine

    config = compose(arguments.overrides, arguments.config_dirs).config
    folder = Path(config.run.dir).absolute() if config.run.dir else Path.cwd()
    while not folder.is_dir():
        folder = folder.parent
    worst = 0
    for finding in examine(CheckInput(config=config, run_dir=folder, hosts=arguments.hosts)):
        worst = max(worst, finding.state == "bad")
        print(f"{_MARK[finding.state]}  {finding.text}" + (f"; {finding.remedy}" if finding.remedy else ""), flush=True)
    return int(worst)

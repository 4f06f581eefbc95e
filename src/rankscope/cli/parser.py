"""The parser of all verbs, and the text of ``rankscope --help``. Each verb does its own heavy imports."""

from __future__ import annotations

import argparse
import re
from difflib import get_close_matches
from typing import Any, NoReturn

from rankscope.cli.verbs.table import ADD_VERBS
from rankscope.errors import ConfigError

__all__ = ["make_parser"]


_EXAMPLES = """\
examples:
  rankscope demo                                      a slow rank, found in a minute on any machine
  rankscope demo --fault turns --ranks 4              another fault, on more ranks; --help lists them
  rankscope run --nproc-per-node 8 train.py --lr 1    in place of torchrun --nproc-per-node 8 train.py --lr 1
  rankscope run -S schedule=short train.py            record steps 3 to 5
  rankscope exec accelerate launch train.py           any other launcher; also mpirun -n 2 rankscope exec train.py
  rankscope capture rankscope_runs/run_0001           a window of the running job, now
  rankscope top rankscope_runs/run_0001               how a running job is doing; `status` is the same in a line
  rankscope why-stuck rankscope_runs/run_0001         the job stands still: which rank is not where the others are
  rankscope analyze rankscope_runs/run_0001           the report again, or of any PyTorch traces
  rankscope diff rankscope_runs/run_0001 rankscope_runs/run_0002     what became slower, and why
  rankscope check rankscope_runs/run_0002 --against baseline:gpt --fail-if 'slower > 5 %'
  rankscope sweep --repeat 3 -S script.bucket_cap_mb=25,50,100 train.py     what each setting gains
  rankscope merge rankscope_runs/run_0001             all ranks on one timeline; `rankscope view` opens it
  rankscope redact rankscope_runs/run_0001 -o copy    a copy that may be shown to others
  rankscope verify rankscope_runs/run_0001            whether its files are what they were
  rankscope gather /tmp/rankscope_x1y2z3              what could not be gathered when the job ended
  rankscope collect /scratch/run_7 --to node-0:29511  this node's part of a run whose nodes share no folder
  rankscope runs prune --keep 10                      free the space of old runs; their reports stay
  rankscope doctor -S run.dir=/shared/runs/first      what on this node would keep a job from being recorded
  rankscope config -S schedule.active=3               what would be recorded

exit codes:
  run, demo  the job's own, as torchrun's
  0          done, whatever the verdict says
  1          an error of rankscope itself
  2          a flag, a word or a configuration value that is not known
  3          a run directory or an output folder that cannot be used
  4          a file that cannot be read as what it was given for
  5          no trace that can be analysed
  10, 11     of check and diff --exit-code: a condition holds; it cannot be decided
  130, 143   interrupted, terminated

Each verb has its own --help.
"""


def make_parser() -> argparse.ArgumentParser:
    """Build the parser. It lists ``run`` and ``exec``, whose arguments other parsers read."""
    parser = _Parser(
        prog="rankscope",
        description="Why is a distributed PyTorch job slow, which rank does it, and what would fixing it gain?",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and leave")
    parser.set_defaults(parser=parser)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True, action=_Verbs)
    for add in ADD_VERBS:
        add(verbs)
    return parser


class _Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001 - it has no public name
    """Adds the parsers of verbs, whose own help begins with the line that stands for them in the list of verbs."""

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser:
        line = str(options.get("help", ""))
        parser: argparse.ArgumentParser = super().add_parser(
            name, **{"description": f"{line[:1].upper()}{line[1:]}{'' if line.endswith('?') else '.'}", **options}
        )
        return parser


class _Parser(argparse.ArgumentParser):
    """Parser that suggests the nearest known word in place of an unknown one."""

    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if message.endswith("required: VERB"):
            raise ConfigError(f"a verb is missing; `{self.prog} --help` lists all of them")
        if unknown is None:
            raise ConfigError(f"{message}; see {self.prog} --help")
        word, known = unknown[1], re.findall(r"[^\s,']+", unknown[2])
        near = get_close_matches(word, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(known)}"
        raise ConfigError(f"{message.partition(': ')[0]}: {word!r} is not known; {hint}")


class _Version(argparse.Action):
    """Option that determines the installed version only when it is used."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"rankscope {version('rankscope')}")
        parser.exit()

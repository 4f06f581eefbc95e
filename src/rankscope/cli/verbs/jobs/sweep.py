"""``rankscope sweep``."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rankscope.cli.parts.arguments import Verbs, add_identity
from rankscope.cli.parts.console import FORMATS, print_utf8, say
from rankscope.cli.parts.sealed import opened_runs
from rankscope.errors import AnalysisError, ConfigError, RunDirError
from rankscope.listing import counted
from rankscope.records.secrets import mask_arguments
from rankscope.rundir.layout import RUNS_FOLDER
from rankscope.rundir.numbered import next_folder
from rankscope.rundir.spool import disabled

if TYPE_CHECKING:
    from rankscope.records.sweep import SweepPlan
    from rankscope.sweeps.folder import SweepDir
    from rankscope.sweeps.work import Launch

__all__ = ["add_sweep", "sweep"]

_HELP = """\
Behind these flags stand those of `rankscope run` (torchrun's, -S, --config-dir), the script and its arguments.
-S takes Hydra's grammar of sweeps; of several things that are swept all combinations are run. The first value of each
is what the others are compared with.

  -S script.lr=0.1,0.3             an argument of the script: its --lr, or lr= of a script of Hydra
  -S 'script.workers=range(0,9,4)' 0, 4 and 8
  -S script.compile=false,true     without the flag, and with it
  -S env.OMP_NUM_THREADS=1,2       a variable of the ranks
  -S +experiment=one_bucket,mine   files of a group; 'glob(*)' for all of them

examples:
  rankscope sweep --repeat 3 --nproc-per-node 2 -S script.bucket_cap_mb=25,1,100 -m rankscope.demo.train --steps 80
  rankscope sweep --dir rankscope_runs/sweep_0001         the table again, of what has ended
  rankscope sweep --dir ... (the same words)              go on with what was stopped, or with a larger --repeat

exit codes:
  0         done, also where runs have failed: the table says so
  2         words that are not known, or a setting that rankscope would not run with; nothing was started
  5         no run has ended well
  130, 143  interrupted, terminated: what has ended is kept
"""


_OF_STEPS = re.compile(r"attempt_[^/]*/pulse/|report/report\.json\Z")
"""Files of a run from which the table is made."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see rankscope sweep --help")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the sweep's own flags."""
    own = _Parser(
        prog="rankscope sweep",
        usage="rankscope sweep [--repeat N] [--dir DIR] [torchrun flags] [-S key=a,b ...] script.py [script arguments]",
        description="Run a script with different settings, several times in turns, and show what each setting gains.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_flags(own)
    return own


def _add_flags(own: argparse.ArgumentParser) -> None:
    own.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each setting (default: 3)")
    own.add_argument(
        "--dir", type=Path, metavar="DIR", help="of the sweep, new or begun (default: rankscope_runs/sweep_NNNN)"
    )
    own.add_argument(
        "--cluster",
        choices=("slurm", "local", "debug"),
        help="each run a job of its own, by submitit; DIR is on a disk that all nodes see",
    )
    own.add_argument(
        "--cluster-set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of submitit: nodes=2, timeout_min=60, gpus_per_node=8, slurm_partition=NAME",
    )
    add_identity(own)
    own.add_argument("--failed-again", action="store_true", help="when going on, run those again that have failed")
    own.add_argument("--dry-run", action="store_true", help="show the settings and their order, and leave")
    own.add_argument("--format", choices=FORMATS, default="terminal", help="of the table on stdout (default: terminal)")


def add_sweep(verbs: Verbs) -> None:
    """Add the verb to the listed ones; :func:`sweep` parses its arguments."""
    listed = verbs.add_parser("sweep", help="run a script with different settings in turns: what does each gain?")
    _add_flags(listed)


def sweep(words: Sequence[str]) -> int:
    """Run all settings and show the table. Returns the exit code."""
    from rankscope.launcher.run.arguments import HelpAsked

    own = parser()
    if words and words[0] in ("-h", "--help"):
        own.print_help()
        return 0
    arguments, rest = _ours(own, list(words))
    if arguments.repeat < 1:
        raise ConfigError(f"--repeat {arguments.repeat} is below its limit of 1")
    if not rest:
        return _again(arguments)
    try:
        plan, launch = _planned(arguments, rest)
    except HelpAsked:
        own.print_help()
        return 0
    if arguments.dry_run:
        _show_plan(plan, launch)
        return 0
    if disabled(os.environ):
        raise ConfigError("RANKSCOPE_DISABLE is set, so that no run would be recorded; unset it")
    return _run_all(arguments, plan, launch)


def _ours(own: argparse.ArgumentParser, words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Separate the sweep's flags, which may be mixed with torchrun's, from all other arguments, in their order.

    The arguments after the script belong to the script. The script is the last argument of the shortest prefix that,
    without the sweep's flags, is a command line of ``rankscope run``.
    """
    from rankscope.launcher.run.arguments import split_at_script

    for length in range(1, len(words) + 1):
        if words[length - 1].startswith("-"):
            continue
        try:
            arguments, head = own.parse_known_args(words[:length])
            split_at_script(head)
        except ConfigError:
            continue
        return arguments, [*head, *words[length:]]
    arguments, rest = own.parse_known_args(words)
    if rest:
        split_at_script(rest)  # raises the error
    return arguments, rest


def _planned(arguments: argparse.Namespace, rest: list[str]) -> tuple[SweepPlan, Launch]:
    from rankscope.cli.parts.sweep_settings import settings_of, split
    from rankscope.launcher.run.arguments import split_at_script
    from rankscope.records.sweep import SweepPlan
    from rankscope.sweeps.work import Launch

    head, script, parsed = split_at_script(rest)
    settings = settings_of(parsed.overrides, parsed.config_dirs)
    fixed, _ = split(parsed.overrides, parsed.config_dirs)
    only_set = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    only_set.add_argument("-S", "--set", action="append")
    flags = only_set.parse_known_args(head)[1]
    return (
        SweepPlan(words=mask_arguments(rest), settings=settings, repeats=arguments.repeat),
        Launch(flags=flags, overrides=fixed, script=script),
    )


def _show_plan(plan: SweepPlan, launch: Launch) -> None:
    from rankscope.sweeps.order import order_in_words

    for setting in plan.settings:
        print(f"{setting.number:3}  {setting.name}")
    print(f"{_extent(plan)}, in the order {order_in_words(plan)}")
    print(f"each: rankscope {shlex.join(mask_arguments(launch.words(plan.settings[0], Path('RUN'))))}")


def _extent(plan: SweepPlan) -> str:
    return f"{counted(len(plan.settings), 'setting')}, {counted(plan.repeats, 'run')} each"


def _run_all(arguments: argparse.Namespace, plan: SweepPlan, launch: Launch) -> int:
    from rankscope.launcher.ending import Ending
    from rankscope.sweeps.cluster import parameters_of, submit
    from rankscope.sweeps.folder import SweepDir
    from rankscope.sweeps.local import Stop
    from rankscope.sweeps.order import order_in_words
    from rankscope.sweeps.work import go_on, missing

    parameters = parameters_of(arguments.cluster_set)
    if parameters and arguments.cluster is None:
        raise ConfigError("--cluster-set is for jobs of a cluster; add --cluster slurm")
    shown = arguments.dir if arguments.dir is not None else next_folder(RUNS_FOLDER, "sweep", "--dir")
    folder = SweepDir(shown)
    with folder.lock(), Stop().watching() as stop:
        plan = folder.begin(plan, shown=str(shown))
        todo, whole = missing(plan, folder, failed_again=arguments.failed_again), len(plan.settings) * plan.repeats
        if len(todo) < whole:
            say(f"{whole - len(todo)} of {whole} runs have ended before and are not run again")
        order = order_in_words(plan)
        say(f"{_extent(plan)} in turns ({order}), kept in {shown}")
        if arguments.cluster is None:
            go_on(todo, launch, folder, stop, say, whole=whole)
        elif todo:
            submit(todo, launch, folder, stop, say, cluster=arguments.cluster, parameters=parameters)
    if stop.signal is not None:
        say(f"stopped; what has ended is kept, and the same command with --dir {shown} goes on")
        if folder.ended():
            _show(arguments, folder, str(shown))
        Ending(exit_code=128 + stop.signal, signal=stop.signal, by_signal=True).leave()
        return 128 + stop.signal
    return _show(arguments, folder, str(shown))


def _again(arguments: argparse.Namespace) -> int:
    """Show the table of an earlier sweep."""
    from rankscope.sweeps.folder import SweepDir

    if arguments.dir is None:
        raise ConfigError("the script to launch is missing; see rankscope sweep --help")
    folder = SweepDir(arguments.dir)
    if not folder.begun:
        raise RunDirError(f"{arguments.dir} holds no sweep; name the folder that `rankscope sweep` said")
    return _show(arguments, folder, str(arguments.dir))


def _show(arguments: argparse.Namespace, folder: SweepDir, shown: str) -> int:
    """Write the table in all formats, and print it in the requested one."""
    from rankscope.privacy.unlock import is_sealed
    from rankscope.rundir.files import rewrite
    from rankscope.sweeps.result import result_of
    from rankscope.sweeps.show import SWEEP_WRITERS

    runs = [folder.path / job.folder for job in folder.ended().values()]
    sealed = any(map(is_sealed, runs))
    if sealed and arguments.identity is None:
        say(f"the runs are encrypted; `rankscope sweep --dir {shown} --identity FILE` shows the table")
        return 0

    @contextlib.contextmanager
    def of_run(run: Path) -> Iterator[Path]:
        with opened_runs([run], arguments, wanted=_OF_STEPS.match) as (plain,):
            yield plain

    result = result_of(folder, shown, of_run)
    print_utf8(SWEEP_WRITERS[arguments.format](result).rstrip("\n"))
    if not sealed:  # the table of encrypted runs is not written, since it would not be encrypted
        try:
            for name, form in (("table.json", "json"), ("table.md", "markdown"), ("table.html", "html")):
                rewrite(folder.path / name, SWEEP_WRITERS[form](result))
            say(f"page: {folder.path / 'table.html'}")
        except OSError as error:
            say(f"the table could not be written into {shown}: {error}")
    if not any(row.step_ms is not None for row in result.rows):
        raise AnalysisError(f"no run of {shown} has a step time; their logs are beside them")
    return 0

"""Arguments of every verb. Heavy imports wait for the verb that needs them."""

from __future__ import annotations

import argparse
import re
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from rankscope.cli.analyze import analyze_verb, report_verb, schema_verb
from rankscope.cli.capture import capture_verb, config_verb
from rankscope.cli.compare_parser import add_compare
from rankscope.cli.completion import completion_verb
from rankscope.cli.console import FORMATS
from rankscope.cli.doctor import doctor_verb
from rankscope.cli.export import add_export
from rankscope.cli.gather import gather_verb
from rankscope.cli.privacy import redact_verb, verify_verb
from rankscope.cli.reduce import cluster_report_verb, reduce_verb
from rankscope.cli.run import demo_verb
from rankscope.cli.runs import add_runs
from rankscope.cli.stuck import why_stuck_verb
from rankscope.cli.timeline import merge_verb, view_verb
from rankscope.cli.top import status_verb, top_verb
from rankscope.errors import ConfigError
from rankscope.records.spec import DETAILS

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
  rankscope merge rankscope_runs/run_0001             all ranks on one timeline; `rankscope view` opens it
  rankscope redact rankscope_runs/run_0001 -o copy    a copy that may be shown to others
  rankscope verify rankscope_runs/run_0001            whether its files are what they were
  rankscope gather /tmp/rankscope_x1y2z3              what could not be gathered when the job ended
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
    """Build the parser of all verbs but ``run`` and ``exec``, whose words go to others."""
    parser = _Parser(
        prog="rankscope",
        description="Why is a distributed PyTorch job slow, which rank does it, and what would fixing it gain?",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and leave")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    verbs.add_parser("run", help="launch a script as torchrun does, record it and report", add_help=False)
    verbs.add_parser("exec", help="run any other launcher or command, record its ranks and report", add_help=False)

    analyze = verbs.add_parser("analyze", help="report on a run, or on any traces of torch.profiler")
    analyze.add_argument("paths", nargs="+", type=Path, metavar="DIR_OR_FILE", help="run directories, folders, traces")
    _add_rank(analyze)
    _add_hta(analyze)
    analyze.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="keep the columns of the traces there, as Parquet (default: beside the traces of a run directory, and for "
        "other people's traces in your cache folder)",
    )
    _add_identity(analyze)
    _add_output(analyze)
    analyze.set_defaults(verb=analyze_verb)

    _add_reduction(verbs)

    report = verbs.add_parser("report", help="show a report again, in another format")
    report.add_argument(
        "path", type=Path, metavar="RUN_OR_FILE", help="a run directory, its report folder or report.json"
    )
    _add_output(report)
    report.set_defaults(verb=report_verb)

    capture = verbs.add_parser("capture", help="record a window of a job that is running under `rankscope run`")
    capture.add_argument("path", type=Path, metavar="RUN", help="the run directory, which the job said at its start")
    capture.add_argument("--steps", type=int, default=5, help="steps to record (default: 5)")
    capture.add_argument("--warmup", type=int, default=2, help="steps to throw away before them (default: 2)")
    capture.add_argument("--detail", choices=DETAILS, default="", help="what else to record")
    capture.add_argument("--timeout", type=float, default=120, metavar="S", help="wait so long (default: 120)")
    capture.set_defaults(verb=capture_verb)

    stuck = verbs.add_parser("why-stuck", help="which rank the others wait for, while a job stands still")
    stuck.add_argument("path", type=Path, metavar="RUN", help="the run directory, which the job said at its start")
    stuck.add_argument("--timeout", type=float, default=60, metavar="S", help="wait so long for ranks (default: 60)")
    stuck.set_defaults(verb=why_stuck_verb)

    top = verbs.add_parser("top", help="how a running job is doing: all ranks, again and again")
    top.add_argument("path", type=Path, metavar="RUN", help="the run directory, which the job said at its start")
    top.add_argument("--ranks", type=int, default=32, metavar="N", help="show so many ranks (default: 32)")
    top.add_argument("--once", action="store_true", help="print once and leave, as where the output is no terminal")
    top.set_defaults(verb=top_verb)
    status = verbs.add_parser("status", help="how a running job is doing, in a line")
    status.add_argument("path", type=Path, metavar="RUN", help="the run directory, which the job said at its start")
    status.add_argument("--json", action="store_true", help="what it is made of")
    status.set_defaults(verb=status_verb)

    add_compare(verbs)
    add_export(verbs)
    _add_timeline(verbs)

    gather = verbs.add_parser("gather", help="place what a job had to leave on its node, as its store was full or hung")
    gather.add_argument("path", type=Path, metavar="SPOOL", help="the folder that `rankscope run` said at its end")
    gather.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="into another run directory (default: the one of the job)"
    )
    gather.set_defaults(verb=gather_verb)

    _add_privacy(verbs)

    add_runs(verbs)

    doctor = verbs.add_parser("doctor", help="look at this node before a job: what would keep it from being recorded")
    _add_settings(doctor)
    doctor.add_argument(
        "--hosts", type=int, default=1, metavar="N", help="the same command runs on so many hosts now: wait for them"
    )
    doctor.set_defaults(verb=doctor_verb)

    config = verbs.add_parser("config", help="show the configuration and what it will record")
    _add_settings(config)
    config.add_argument(
        "--explain",
        metavar="KEY",
        nargs="?",
        const="",
        help="what a key means, or all keys of a group, or all; with its value and its default",
    )
    config.set_defaults(verb=config_verb)

    schema = verbs.add_parser("schema", help="print the JSON Schema of report.json, run.json, or what diff prints")
    schema.add_argument("name", choices=("report", "run", "diff"), help="which of them")
    schema.set_defaults(verb=schema_verb)

    completion = verbs.add_parser("completion", help="print a script that completes words of the command in a shell")
    completion.add_argument(
        "shell", choices=("bash", "zsh", "tcsh"), help='for instance: eval "$(rankscope completion bash)"'
    )
    completion.set_defaults(verb=lambda arguments: completion_verb(arguments, make_parser()))

    _add_demo(verbs)
    return parser


def _add_demo(verbs: argparse._SubParsersAction[_Parser]) -> None:
    from rankscope.demo.faults import FAULTS

    demo = verbs.add_parser(
        "demo",
        help="train a small transformer with a fault planted, and find it",
        epilog="faults:\n" + "\n".join(f"  {name:15} {fault.line()}" for name, fault in FAULTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("--fault", choices=FAULTS, metavar="NAME", default="input_stall", help="default: input_stall")
    demo.add_argument("--ranks", type=int, default=2, help="processes, all on this machine (default: 2)")
    demo.add_argument("--bad-rank", type=int, metavar="RANK", help="the rank with the fault (default: the last)")
    demo.add_argument("--size", type=float, help="of the fault (default: as below)")
    demo.add_argument("--steps", type=int, help="training steps (default: enough to show the fault)")
    demo.add_argument("--then-fix", action="store_true", help="run it again without the fault, and compare the two")
    demo.add_argument("-S", "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[])
    demo.set_defaults(verb=demo_verb)


def _add_hta(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-hta", dest="hta", action="store_false", help="leave out Holistic Trace Analysis")
    parser.add_argument(
        "--hta-all", dest="hta", action="store_const", const="all", help="Holistic Trace Analysis of each of many ranks"
    )
    parser.set_defaults(hta=True)


def _add_reduction(verbs: argparse._SubParsersAction[_Parser]) -> None:
    from rankscope.engines.table import ENGINES

    reduce = verbs.add_parser(
        "reduce",
        help="turn the traces of many ranks into columns, where they are; cluster-report reads those",
        epilog="engines:\n" + "\n".join(f"  {engine.name:7} {engine.about}" for engine in ENGINES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    reduce.add_argument("paths", nargs="+", type=Path, metavar="DIR_OR_FILE", help="run directories, folders, traces")
    reduce.add_argument(
        "--output", metavar="DIR_OR_URL", required=True, help="folder of the objects, or s3://, gs:// ..."
    )
    reduce.add_argument("--resume", action="store_true", help="leave objects alone that are there, and whole")
    reduce.add_argument("--engine", choices=[e.name for e in ENGINES], default="local", help="who works (see below)")
    reduce.add_argument("--address", metavar="WHERE", default="", help="of the engine's scheduler, or a file with it")
    reduce.add_argument("--workers", type=int, metavar="N", help="processes (default: the engine's own choice)")
    reduce.add_argument("--objects", type=int, metavar="N", help="into so many objects (default: one for 16 traces)")
    reduce.add_argument(
        "--share",
        metavar="I/N",
        help="only the I-th of N shares, in this process: where srun or another launcher starts N of them",
    )
    reduce.set_defaults(verb=reduce_verb)

    cluster = verbs.add_parser("cluster-report", help="report on a job from the objects that reduce made on its nodes")
    cluster.add_argument("paths", nargs="+", metavar="DIR_OR_URL", help="folders and URLs of objects, or objects")
    cluster.add_argument("--run", type=Path, metavar="RUN", help="run directory, whose run.json knows missing ranks")
    _add_hta(cluster)
    _add_output(cluster)
    cluster.set_defaults(verb=cluster_report_verb)


def _add_timeline(verbs: argparse._SubParsersAction[_Parser]) -> None:
    merge = verbs.add_parser("merge", help="put all ranks on one timeline, for the Perfetto UI")
    merge.add_argument("path", type=Path, metavar="RUN", help="a run directory, or a folder of traces")
    _add_rank(merge)
    merge.add_argument("--output", type=Path, metavar="FILE", help="default: RUN/report/cluster.trace.json.gz")
    _add_identity(merge)
    merge.add_argument("--steps", metavar="A-B", help="only these steps, for instance 13-15")
    merge.add_argument("--ranks", metavar="LIST", help="only these ranks, for instance 0,3 or 0-3")
    merge.add_argument("--categories", metavar="LIST", help="only these events, for instance kernel,cpu_op")
    merge.add_argument(
        "--max-mb", type=float, metavar="N", help="bound of the unpacked file; the least important is left out"
    )
    merge.set_defaults(verb=merge_verb)

    view = verbs.add_parser("view", help="serve report and timeline on this machine and open them")
    view.add_argument("path", type=Path, metavar="RUN", help="a run directory or its report folder")
    view.add_argument("--port", type=int, help="default: 9001, to which the Perfetto UI may connect, or a free one")
    view.add_argument("--no-browser", dest="browser", action="store_false", help="only print the addresses")
    view.set_defaults(verb=view_verb)


def _add_privacy(verbs: argparse._SubParsersAction[_Parser]) -> None:
    redact = verbs.add_parser("redact", help="copy a run without what reveals models, machines and people")
    redact.add_argument("path", nargs="?", type=Path, metavar="RUN_OR_DIR", help="a run, a folder of traces, a trace")
    redact.add_argument("-o", "--output", type=Path, metavar="OUT", help="folder of the copy, new or empty")
    redact.add_argument(
        "--level",
        choices=("share", "vendor", "public"),
        default="public",
        help="for whom it is; docs/privacy.md says what each keeps (default: public, which keeps least)",
    )
    redact.add_argument("--policy", type=Path, metavar="FILE", help="YAML: what else is kept, or left out")
    redact.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help="the key of an earlier copy, for the same tokens (default: OUT.key.json)",
    )
    redact.add_argument("--no-report", dest="report", action="store_false", help="write no report of the copy")
    redact.add_argument(
        "--reveal", type=Path, metavar="KEY", help="print a file (or standard input) with its tokens turned back"
    )
    _add_identity(redact)
    redact.set_defaults(verb=redact_verb)

    verify = verbs.add_parser("verify", help="whether the files of a run are what they were when it ended")
    verify.add_argument("path", type=Path, metavar="RUN", help="a run directory")
    verify.add_argument("--key", type=Path, metavar="FILE", help="the public key that must have signed it (Ed25519)")
    _add_identity(verify)
    verify.set_defaults(verb=verify_verb)


def _add_identity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--identity", type=Path, metavar="FILE", help="the key of age with which an encrypted run is read"
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-S", "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[])
    parser.add_argument("--config-dir", dest="config_dirs", metavar="DIR", type=Path, action="append", default=[])


def _add_rank(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rank",
        dest="given_ranks",
        metavar="FILE=RANK",
        action="append",
        default=[],
        help="which rank a trace is of, where neither its content nor its name says so; may be given several times",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="what goes to stdout (default: terminal)")
    parser.add_argument(
        "--schema",
        choices=("1",),
        default="1",
        help="major version of the schema of --format json, so that a reader keeps its form when there is a next one",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="also write report.html, report.json, report.md there"
    )


class _Parser(argparse.ArgumentParser):
    """Names what was probably meant, where a word is none of those that are known."""

    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if unknown is None:
            raise ConfigError(f"{message}; see {self.prog} --help")
        word, known = unknown[1], re.findall(r"[^\s,']+", unknown[2])
        near = get_close_matches(word, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(known)}"
        raise ConfigError(f"{message.partition(': ')[0]}: {word!r} is not known; {hint}")


class _Version(argparse.Action):
    """Reads the installed version only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"rankscope {version('rankscope')}")
        parser.exit()

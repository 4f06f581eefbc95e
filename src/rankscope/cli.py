"""The verbs, their exit codes, and the only place that prints. Heavy imports wait for the verb that needs them."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.errors import ConfigError, RankscopeError, RunDirError
from rankscope.model import DETAILS
from rankscope.rundir import RunDir

if TYPE_CHECKING:
    from rankscope.model import ClusterReport, RunManifest

__all__ = ["main"]

FORMATS = ("terminal", "json", "markdown", "html")

_EXAMPLES = """\
examples:
  rankscope demo                                      a slow rank, found in a minute on any machine
  rankscope demo --fault turns --ranks 4              another fault, on more ranks; --help lists them
  rankscope run --nproc-per-node 8 train.py --lr 1    in place of torchrun --nproc-per-node 8 train.py --lr 1
  rankscope run -S schedule=short train.py            record steps 3 to 5
  rankscope capture rankscope_runs/run_0001           a window of the running job, now
  rankscope analyze rankscope_runs/run_0001           the report again, or of any PyTorch traces
  rankscope merge rankscope_runs/run_0001             all ranks on one timeline; `rankscope view` opens it
  rankscope config -S schedule.active=3               what would be recorded

Each verb has its own --help.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code; a :class:`RankscopeError` becomes one line on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["run"]:  # never through argparse, which would take torchrun's flags for its own
            return _run(words[1:])
        arguments = _parser().parse_args(words)
        verb: Callable[[argparse.Namespace], int] = arguments.verb
        return verb(arguments)
    except RankscopeError as error:
        _say(f"error: {error}")
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()  # or Python complains about stdout at exit
        return 1


def _say(text: str) -> None:
    # A closed stderr must not end a training job.
    with contextlib.suppress(OSError, ValueError):
        print(f"rankscope: {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rankscope",
        description="Why is a distributed PyTorch job slow, which rank does it, and what would fixing it gain?",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and leave")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    verbs.add_parser("run", help="launch a script as torchrun does, record it and report", add_help=False)

    analyze = verbs.add_parser("analyze", help="report on a run, or on any traces of torch.profiler")
    analyze.add_argument("paths", nargs="+", type=Path, metavar="DIR_OR_FILE", help="run directories, folders, traces")
    analyze.add_argument("--no-hta", dest="hta", action="store_false", help="leave out Holistic Trace Analysis")
    _add_output(analyze)
    analyze.set_defaults(verb=_analyze)

    report = verbs.add_parser("report", help="show a report again, in another format")
    report.add_argument(
        "path", type=Path, metavar="RUN_OR_FILE", help="a run directory, its report folder or report.json"
    )
    _add_output(report)
    report.set_defaults(verb=_report)

    capture = verbs.add_parser("capture", help="record a window of a job that is running under `rankscope run`")
    capture.add_argument("path", type=Path, metavar="RUN", help="the run directory, which the job said at its start")
    capture.add_argument("--steps", type=int, default=5, help="steps to record (default: 5)")
    capture.add_argument("--warmup", type=int, default=2, help="steps to throw away before them (default: 2)")
    capture.add_argument("--detail", choices=DETAILS, default="", help="what else to record")
    capture.add_argument("--timeout", type=float, default=120, metavar="S", help="wait so long (default: 120)")
    capture.set_defaults(verb=_capture)

    _add_timeline(verbs)

    config = verbs.add_parser("config", help="show the configuration and what it will record")
    config.add_argument("-S", "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[])
    config.add_argument("--config-dir", dest="config_dirs", metavar="DIR", type=Path, action="append", default=[])
    config.set_defaults(verb=_config)

    _add_demo(verbs)
    return parser


def _add_demo(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from rankscope.demo.faults import FAULTS

    demo = verbs.add_parser(
        "demo",
        help="train a small transformer with a fault planted, and find it",
        epilog="faults:\n" + "\n".join(f"  {name:15} {fault.line()}" for name, fault in FAULTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("--fault", choices=FAULTS, metavar="NAME", default="input_stall", help="default: input_stall")
    demo.add_argument("--ranks", type=int, default=2, help="processes, all on this machine (default: 2)")
    demo.add_argument("--bad-rank", type=int, metavar="RANK", help="the rank that is struck (default: the last)")
    demo.add_argument("--size", type=float, help="of the fault (default: as below)")
    demo.add_argument("--steps", type=int, help="training steps (default: enough to show the fault)")
    demo.add_argument("-S", "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[])
    demo.set_defaults(verb=_demo)


def _add_timeline(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    merge = verbs.add_parser("merge", help="put all ranks on one timeline, for the Perfetto UI")
    merge.add_argument("path", type=Path, metavar="RUN", help="a run directory, or a folder of traces")
    merge.add_argument("--output", type=Path, metavar="FILE", help="default: RUN/report/cluster.trace.json.gz")
    merge.add_argument("--steps", metavar="A-B", help="only these steps, for instance 13-15")
    merge.add_argument("--ranks", metavar="LIST", help="only these ranks, for instance 0,3 or 0-3")
    merge.add_argument("--categories", metavar="LIST", help="only these events, for instance kernel,cpu_op")
    merge.add_argument(
        "--max-mb", type=float, metavar="N", help="bound of the unpacked file; the least important is left out"
    )
    merge.set_defaults(verb=_merge)

    view = verbs.add_parser("view", help="serve report and timeline on this machine and open them")
    view.add_argument("path", type=Path, metavar="RUN", help="a run directory or its report folder")
    view.add_argument("--port", type=int, help="default: 9001, to which the Perfetto UI may connect, or a free one")
    view.add_argument("--no-browser", dest="browser", action="store_false", help="only print the addresses")
    view.set_defaults(verb=_view)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="what goes to stdout (default: terminal)")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="also write report.html, report.json, report.md there"
    )


class _Version(argparse.Action):
    """Reads the installed version only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"rankscope {version('rankscope')}")
        parser.exit()


def _run(words: Sequence[str]) -> int:
    from rankscope.launcher.arguments import HelpAsked, help_text, parse
    from rankscope.launcher.elastic import run_torchrun
    from rankscope.launcher.launch import launch
    from rankscope.launcher.wrapup import Outcome

    try:
        arguments = parse(words)
    except HelpAsked:
        print(help_text())
        return 0
    try:
        from rankscope.compose import compose

        composed = compose(arguments.overrides, arguments.config_dirs)
    except RankscopeError:
        raise
    except Exception as error:  # a broken Hydra is our trouble, not the job's
        _say(f"not recording, the job runs without rankscope: {type(error).__name__}: {error}")
        outcome = Outcome(run_torchrun(arguments.torchrun))
    else:
        outcome = launch(arguments, composed.config, plain=composed.plain, argv=["rankscope", "run", *words], say=_say)
    # On stderr: the job's stdout may be read by a program and stays the job's.
    with contextlib.suppress(OSError, ValueError):
        if outcome.summary is not None and not _shown_in_colour(outcome.report):
            print(f"\n{outcome.summary.rstrip()}", file=sys.stderr)
        if outcome.report is not None:
            print(f"\nReport: {outcome.report / 'report.html'}", file=sys.stderr, flush=True)
    outcome.ending.leave()
    return outcome.ending.exit_code


def _shown_in_colour(folder: Path | None) -> bool:
    """Show the report of a run on a terminal; False where the plain summary has to do."""
    if folder is None or not sys.stderr.isatty():
        return False
    try:
        from rich.console import Console

        from rankscope.model import ClusterReport, from_json
        from rankscope.report.terminal import show

        report = from_json(ClusterReport, (folder / "report.json").read_bytes())
        console = Console(stderr=True)
        console.print()
        show(report, console)
    except Exception:  # the job's exit code matters more than colours
        return False
    return True


def _analyze(arguments: argparse.Namespace) -> int:
    missing = [path for path in arguments.paths if not path.exists()]
    if missing:
        raise ConfigError(f"{missing[0]} does not exist; name a run directory, a folder or trace files")

    from rankscope.analysis.pipeline import analyze, stages
    from rankscope.report.progress import work
    from rankscope.trace.load import load_traces

    manifest = _manifest(arguments.paths)
    with work(_say) as doing:
        load = load_traces(arguments.paths, progress=doing.bytes("loading traces"))
        progress = doing.stages(stages(load, hta=arguments.hta))
        report = analyze(load, manifest, hta=arguments.hta, progress=progress)
    return _show(report, arguments)


def _manifest(paths: Sequence[Path]) -> RunManifest | None:
    """Ours tells more than the traces: steps, hosts, who is missing. Several folders have no common one."""
    from rankscope.model import RunManifest, from_json

    manifest = RunDir(paths[0]).manifest
    if len(paths) != 1 or not manifest.is_file():
        return None
    try:
        return from_json(RunManifest, manifest.read_bytes())
    except ValueError as error:
        _say(f"{manifest} is left out: {error}")
        return None


def _report(arguments: argparse.Namespace) -> int:
    from rankscope.model import ClusterReport, from_json

    path: Path = arguments.path
    candidates = [path / "report" / "report.json", path / "report.json"] if path.is_dir() else [path]
    found = next((candidate for candidate in candidates if candidate.is_file()), None)
    if found is None:
        raise RunDirError(f"{path} holds no report.json; `rankscope analyze {path} --output {path}/report` writes one")
    try:
        report = from_json(ClusterReport, found.read_bytes())
    except ValueError as error:
        raise RunDirError(f"{found} is not a report of rankscope: {error}") from error
    return _show(report, arguments)


def _show(report: ClusterReport, arguments: argparse.Namespace) -> int:
    from rankscope.report import WRITERS, write_report

    if arguments.output is not None:
        for name, path in write_report(report, arguments.output).items():
            _say(f"{name}: {path}")
    if arguments.format == "terminal" and sys.stdout.isatty():
        from rich.console import Console

        from rankscope.report.terminal import show

        show(report, Console())  # rich knows about NO_COLOR and what the terminal can do
    else:
        print(WRITERS[arguments.format](report).rstrip("\n"))
    return 0


def _capture(arguments: argparse.Namespace) -> int:
    from rankscope.node.requests import answers, ask

    for name, least in (("steps", 1), ("warmup", 1)):
        if getattr(arguments, name) < least:
            raise ConfigError(f"--{name} {getattr(arguments, name)} is below its limit of {least}")
    run_dir = RunDir(arguments.path)
    request = ask(run_dir, steps=arguments.steps, warmup=arguments.warmup, detail=arguments.detail)
    _say(f"{request.name}: asked for {request.steps} steps of every rank")
    deadline = time.monotonic() + arguments.timeout
    while True:
        records = answers(run_dir, request)
        if records and len(records) == records[0].world_size:
            break
        if time.monotonic() > deadline:
            said = (
                f"{len(records)} of {records[0].world_size} ranks have answered" if records else "no rank has answered"
            )
            raise RunDirError(
                f"{said} within {arguments.timeout:.0f} s; is the job training? The request stands: "
                f"what comes later is kept in {run_dir.path}"
            )
        time.sleep(0.2)
    first = records[0]
    folder = run_dir.window(first.attempt, first.window or 0)
    whole = sum(record.trace is not None for record in records)
    steps = f"steps {first.first_step} to {first.last_step}" if first.first_step is not None else "no steps"
    print(f"{folder}: {steps}, {whole} of {len(records)} ranks")
    for reason in sorted({record.reason for record in records if record.trace is None and record.reason}):
        _say(reason)
    _say(f"`rankscope analyze {folder}` compares the ranks now; the report at the end of the job holds all windows")
    return 0 if whole else RunDirError.exit_code


def _merge(arguments: argparse.Namespace) -> int:
    run: Path = arguments.path
    if not run.is_dir():
        raise ConfigError(f"{run} is no folder; name a run directory or a folder of traces")

    from rankscope.report import link_timeline
    from rankscope.report.progress import work
    from rankscope.timeline.merge import merge
    from rankscope.timeline.output import choose_output
    from rankscope.timeline.selection import MAX_MB, Selection, parse_categories, parse_ranks, parse_steps
    from rankscope.trace.load import load_traces

    selection = Selection(
        steps=parse_steps(arguments.steps) if arguments.steps is not None else None,
        ranks=parse_ranks(arguments.ranks) if arguments.ranks is not None else None,
        categories=parse_categories(arguments.categories) if arguments.categories is not None else None,
        max_mb=MAX_MB if arguments.max_mb is None else arguments.max_mb,
    )
    output, ours = choose_output(RunDir(run), arguments.output)
    manifest = _manifest([run])
    with work(_say) as doing:
        load = load_traces([run], progress=doing.bytes("loading traces"))
        stages, written = doing.stages(2), doing.bytes("writing the timeline")
        merged = merge(load, output, selection, manifest, replace=ours, progress=stages, written=written)
    if ours:
        link_timeline(output.parent)
    for note in merged.notes:
        _say(note)
    if merged.left_out:
        _say(f"left out to stay under {selection.max_mb:g} MB: {'; '.join(merged.left_out)}")
    size = f"{merged.file_bytes / 1e6:.1f} MB ({merged.json_bytes / 1e6:.1f} unpacked)"
    _say(f"{merged.slices:,} slices, {merged.arrows:,} arrows, {size}")
    print(merged.path)
    return 0


def _view(arguments: argparse.Namespace) -> int:
    from rankscope.timeline.output import TIMELINE, report_folder
    from rankscope.timeline.serve import make_server

    folder = report_folder(arguments.path)
    with make_server(folder, arguments.port) as server:
        urls = []
        if (folder / "report.html").is_file():
            urls.append(server.report_url)
            print(f"report:   {server.report_url}")
        if (folder / TIMELINE).is_file():
            urls.append(server.timeline_url)
            print(f"timeline: {server.timeline_url}")
        else:
            _say(f"no timeline yet; `rankscope merge {arguments.path}` writes one")
        sys.stdout.flush()
        _say("serving on this machine only, until Ctrl-C")
        if arguments.browser:
            import webbrowser

            for url in urls:
                webbrowser.open(url)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _config(arguments: argparse.Namespace) -> int:
    from rankscope.compose import compose
    from rankscope.config import plan_in_words

    composed = compose(arguments.overrides, arguments.config_dirs)
    print(composed.yaml)
    for line in plan_in_words(composed.config):
        print(f"# {line}")
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    import os

    from rankscope.demo import JOBS
    from rankscope.demo.faults import FAULTS
    from rankscope.demo.loopback import loopback_rendezvous

    fault, ranks = FAULTS[arguments.fault], arguments.ranks
    bad = ranks - 1 if arguments.bad_rank is None else arguments.bad_rank
    if not 1 <= ranks <= 64:
        raise ConfigError(f"--ranks {ranks} is out of 1 to 64; 2 are enough to see a slow one")
    if not 0 <= bad < ranks:
        raise ConfigError(f"--bad-rank {bad} is none of the {ranks} ranks, 0 to {ranks - 1}")
    lacking = fault.lacking(ranks)
    if lacking is not None:
        raise ConfigError(f"--fault {arguments.fault} needs {lacking}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # what torchrun would set, without its banner
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # Kineto tells each start and stop on stderr, and finds no GPU
    job = ["--fault", arguments.fault, "--bad-rank", bad, "--steps", arguments.steps or fault.steps]
    if arguments.size is not None:
        job += ["--size", arguments.size]
    settings = [word for setting in (*fault.settings, *arguments.overrides) for word in ("-S", setting)]
    with loopback_rendezvous() as rendezvous:
        words = [*rendezvous, "--nproc-per-node", ranks, *settings, JOBS / fault.script, *job]
        return _run([str(word) for word in words])

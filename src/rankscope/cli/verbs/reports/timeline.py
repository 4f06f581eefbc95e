"""``rankscope merge`` and ``rankscope view``."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs, add_identity, add_rank
from rankscope.cli.parts.audit_log import log_export
from rankscope.cli.parts.console import say
from rankscope.cli.parts.sealed import opened_runs, refuse_beside
from rankscope.cli.verbs.reports.analyze import given_ranks, manifest_of
from rankscope.errors import ConfigError
from rankscope.rundir.begun import refuse_folder_of_runs
from rankscope.rundir.layout import RunDir

__all__ = ["add_timeline", "merge_verb", "view_verb"]


def add_timeline(verbs: Verbs) -> None:
    """Add the verbs."""
    merge = verbs.add_parser("merge", help="put all ranks on one timeline, for the Perfetto UI")
    merge.add_argument("path", type=Path, metavar="RUN", help="a run directory, or a folder of traces")
    add_rank(merge)
    merge.add_argument("--output", type=Path, metavar="FILE", help="default: RUN/report/cluster.trace.json.gz")
    add_identity(merge)
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


def merge_verb(arguments: argparse.Namespace) -> int:
    """Write the traces of all ranks on one timeline into one file."""
    run: Path = arguments.path
    if not run.is_dir():
        raise ConfigError(f"{run} is no folder; name a run directory or a folder of traces")
    refuse_folder_of_runs(run)

    from rankscope.privacy.unlock import is_sealed
    from rankscope.progress import show_progress
    from rankscope.report import link_timeline
    from rankscope.timeline.merge import merge
    from rankscope.timeline.output import choose_output
    from rankscope.timeline.selection import MAX_MB, Selection, parse_categories, parse_ranks, parse_steps
    from rankscope.trace.files.load import load_traces

    selection = Selection(
        steps=parse_steps(arguments.steps) if arguments.steps is not None else None,
        ranks=parse_ranks(arguments.ranks) if arguments.ranks is not None else None,
        categories=parse_categories(arguments.categories) if arguments.categories is not None else None,
        max_mb=MAX_MB if arguments.max_mb is None else arguments.max_mb,
    )
    if arguments.output is None and is_sealed(run):
        raise ConfigError(f"{run} is encrypted, and a timeline is not; name a private file elsewhere with --output")
    refuse_beside([run], arguments.output)
    output, ours = choose_output(RunDir(run), arguments.output)
    with opened_runs([run], arguments) as (path,), show_progress(say) as doing:
        manifest, cache = manifest_of([path]), path == run
        given = given_ranks(arguments.given_ranks)
        load = load_traces([path], ranks=given, cache=cache, progress=doing.bytes("loading traces"))
        stages, written = doing.stages(2), doing.bytes("writing the timeline")
        merged = merge(load, output, selection, manifest, replace=ours, progress=stages, written=written)
    log_export([run], output)
    if ours:
        link_timeline(output.parent)
    for note in merged.notes:
        say(note)
    if merged.left_out:
        say(f"left out to stay under {selection.max_mb:g} MB: {'; '.join(merged.left_out)}")
    size = f"{merged.file_bytes / 1e6:.1f} MB ({merged.json_bytes / 1e6:.1f} unpacked)"
    say(f"{merged.slices:,} slices, {merged.arrows:,} arrows, {size}")
    print(merged.path)
    return 0


def view_verb(arguments: argparse.Namespace) -> int:
    """Serve the report and the timeline on the loopback interface."""
    from rankscope.privacy.unlock import is_sealed
    from rankscope.timeline.output import TIMELINE, report_folder
    from rankscope.timeline.serve import make_server

    if is_sealed(arguments.path):
        raise ConfigError(
            f"{arguments.path} is encrypted, and holds no report; `rankscope analyze {arguments.path} --identity KEY "
            "--output FOLDER` writes one, which can be viewed"
        )
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
            say(f"no timeline yet; `rankscope merge {arguments.path}` writes one")
        sys.stdout.flush()
        say("serving on this machine only, until Ctrl-C")
        if arguments.browser:
            import webbrowser

            for url in urls:
                webbrowser.open(url)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0

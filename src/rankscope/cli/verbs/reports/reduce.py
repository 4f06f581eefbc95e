"""``rankscope reduce`` and ``rankscope cluster-report``."""

from __future__ import annotations

import argparse
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.cli.parts.arguments import Verbs, add_hta, add_identity, add_output
from rankscope.cli.parts.audit_log import log_export
from rankscope.cli.parts.console import say, show
from rankscope.cli.parts.engines import add_engine, engine_of
from rankscope.cli.parts.sealed import OF_MANIFEST, missing_one, opened_runs, refuse_beside
from rankscope.cli.verbs.reports.analyze import manifest_of
from rankscope.errors import ConfigError, RunDirError

if TYPE_CHECKING:
    from rankscope.reduced.reduce import Share

__all__ = ["add_reduce", "cluster_report_verb", "reduce_verb"]


def add_reduce(verbs: Verbs) -> None:
    """Add the verbs."""
    reduce = verbs.add_parser(
        "reduce", help="turn the traces of many ranks into columns, where they are; cluster-report reads those"
    )
    reduce.add_argument("paths", nargs="+", type=Path, metavar="DIR_OR_FILE", help="run directories, folders, traces")
    reduce.add_argument(
        "--output", metavar="DIR_OR_URL", required=True, help="folder of the objects, or s3://, gs:// ..."
    )
    reduce.add_argument("--resume", action="store_true", help="leave objects alone that are there, and whole")
    add_engine(reduce)
    reduce.add_argument("--objects", type=int, metavar="N", help="into so many objects (default: one for 16 traces)")
    reduce.add_argument(
        "--share",
        metavar="I/N",
        help="only the I-th of N shares, in this process: where srun or another launcher starts N of them",
    )
    add_identity(reduce)
    reduce.set_defaults(verb=reduce_verb)

    cluster = verbs.add_parser("cluster-report", help="report on a job from the objects that reduce made on its nodes")
    cluster.add_argument("paths", nargs="+", metavar="DIR_OR_URL", help="folders and URLs of objects, or objects")
    cluster.add_argument("--run", type=Path, metavar="RUN", help="run directory, whose run.json knows missing ranks")
    add_identity(cluster)
    add_hta(cluster)
    add_output(cluster)
    cluster.set_defaults(verb=cluster_report_verb)


def reduce_verb(arguments: argparse.Namespace) -> int:
    """Reduce traces to columns on the machine that stores them."""
    if (missing := missing_one(arguments.paths)) is not None:
        raise ConfigError(f"{missing} does not exist; name a run directory, a folder or trace files")
    if "://" not in arguments.output:
        refuse_beside(arguments.paths, Path(arguments.output))
    with opened_runs(arguments.paths, arguments) as paths:
        if paths != arguments.paths and arguments.engine != "local":
            raise ConfigError("an encrypted run, or one in a store, is opened on this machine only: use --engine local")
        code = _reduce(arguments, paths) if arguments.share is None else _one_share(arguments, paths)
    log_export(arguments.paths, arguments.output)
    return code


def _reduce(arguments: argparse.Namespace, paths: list[Path]) -> int:
    from rankscope.progress import show_progress
    from rankscope.reduced.reduce import reduce_shares, shares_of, without_whole
    from rankscope.reduced.store import is_url

    local, output = arguments.engine == "local", arguments.output
    if not local:  # its workers may have other current folders
        paths = [path.absolute() for path in paths]
        output = output if is_url(output) else str(Path(output).absolute())
    shares = shares_of(paths, output, objects=arguments.objects)
    every, whole = shares, len(shares)
    if arguments.resume:
        shares = without_whole(shares)
    alone = local and (len(shares) == 1 or arguments.workers == 1)
    engine = engine_of(arguments, here=alone)
    with show_progress(say) as doing, engine as executor:
        progress = doing.bytes("reducing traces")
        failed = list(reduce_shares(shares, executor, progress, _here))
    for share, why in failed:
        say(f"no object {share.target}: {why}")
    print(f"{arguments.output}: {whole - len(failed)} object(s) of reduced traces")
    if others := _others(every):
        more = " ..." if len(others) > 2 else ""
        say(
            f"{arguments.output} also holds {len(others)} other object(s) ({', '.join(others[:2])}{more}), which "
            "`rankscope cluster-report` reads as well: remove them if they are of another run, or name another --output"
        )
    return RunDirError.exit_code if failed else 0


def _here(count: int, why: str) -> None:
    say(f"{count} object(s) are made in this process, because a worker of the engine did not ({why})")


def _others(shares: list[Share]) -> list[str]:
    from rankscope.reduced.reduce import objects_beside

    try:
        return objects_beside(shares)
    except RunDirError:  # what could not be written was said already
        return []


def _one_share(arguments: argparse.Namespace, paths: list[Path]) -> int:
    from rankscope.reduced.reduce import Share, add_share

    number, of = share_in(arguments.share)
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
    share = Share(tuple(paths), arguments.output, number, of, host)
    try:
        target, count = add_share(share)
    except OSError as error:
        raise RunDirError(f"{share.target} cannot be written ({error}); name another --output") from error
    print(f"{target}: {count} file(s)")
    if target != share.target:
        say(
            f"{share.target} holds other traces and stays, for instance those of another node with this host name: "
            "remove it if they are outdated, since `rankscope cluster-report` reads both"
        )
    return 0


def share_in(text: str) -> tuple[int, int]:
    """Parse ``I/N``: the number of a share, and the number of shares.

    Raises:
        ConfigError: the text has another form.
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    number, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if number >= of:
        raise ConfigError(f"--share {text} is not I/N with I below N; write for instance --share 0/8 to 7/8")
    return number, of


def cluster_report_verb(arguments: argparse.Namespace) -> int:
    """Report on a job from its reduced traces, in a folder or an object store."""
    from rankscope.analysis.pipeline import analyze, stages
    from rankscope.progress import show_progress
    from rankscope.reduced.collected import load_objects

    runs = [arguments.run] if arguments.run is not None else []
    refuse_beside(runs, arguments.output)
    with opened_runs(runs, arguments, wanted=OF_MANIFEST.match) as opened:
        manifest = manifest_of(opened) if opened else None
    with show_progress(say) as doing:
        load = load_objects(arguments.paths, doing.bytes("reading objects"))
        progress = doing.stages(stages(load, hta=arguments.hta))
        report = analyze(load, manifest, hta=arguments.hta, progress=progress)
    code = show(report, arguments)
    log_export([*runs, *arguments.paths], arguments.output)
    return code

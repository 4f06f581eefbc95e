"""``rankscope reduce`` and ``rankscope cluster-report``."""

from __future__ import annotations

import argparse
import re
import socket
from contextlib import nullcontext
from pathlib import Path

from rankscope.cli.analyze import manifest_of
from rankscope.cli.console import say, show
from rankscope.errors import ConfigError, RunDirError

__all__ = ["cluster_report_verb", "reduce_verb"]


def reduce_verb(arguments: argparse.Namespace) -> int:
    """Turn traces into columns, where they are."""
    missing = [path for path in arguments.paths if not path.exists()]
    if missing:
        raise ConfigError(f"{missing[0]} does not exist; name a run directory, a folder or trace files")
    if arguments.share is not None:
        return _one_share(arguments)

    from rankscope.engines.table import BY_NAME
    from rankscope.progress import work
    from rankscope.reduced.reduce import reduce_shares, shares_of, without_whole
    from rankscope.reduced.store import is_url

    local, paths, output = arguments.engine == "local", arguments.paths, arguments.output
    if not local:  # its workers are in other folders
        paths = [path.absolute() for path in paths]
        output = output if is_url(output) else str(Path(output).absolute())
    shares = shares_of(paths, output, objects=arguments.objects)
    whole = len(shares)
    if arguments.resume:
        shares = without_whole(shares)
    alone = local and (len(shares) == 1 or arguments.workers == 1)
    engine = nullcontext() if alone else BY_NAME[arguments.engine].open(arguments.address, arguments.workers)
    with work(say) as doing, engine as executor:
        progress = doing.bytes("reducing traces")
        failed = list(reduce_shares(shares, executor, progress))
    for share, why in failed:
        say(f"no object {share.target}: {why}")
    print(f"{arguments.output}: {whole - len(failed)} object(s) of reduced traces")
    return RunDirError.exit_code if failed else 0


def _one_share(arguments: argparse.Namespace) -> int:
    from rankscope.reduced.reduce import Share, reduce_share

    number, of = share_in(arguments.share)
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
    share = Share(tuple(arguments.paths), arguments.output, number, of, host)
    try:
        count = reduce_share(share)
    except OSError as error:
        raise RunDirError(f"{share.target} cannot be written ({error}); name another --output") from error
    print(f"{share.target}: {count} file(s)")
    return 0


def share_in(text: str) -> tuple[int, int]:
    """``I/N``: which share, and of how many.

    Raises:
        ConfigError: it is nothing of the kind.
    """
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if number >= of:
        raise ConfigError(f"--share {text} is not I/N with I below N; write for instance --share 0/8 to 7/8")
    return number, of


def cluster_report_verb(arguments: argparse.Namespace) -> int:
    """Report on a job from its objects of reduced traces."""
    from rankscope.analysis.pipeline import analyze, stages
    from rankscope.progress import work
    from rankscope.reduced.collected import load_objects

    manifest = manifest_of([arguments.run]) if arguments.run is not None else None
    with work(say) as doing:
        load = load_objects(arguments.paths, doing.bytes("reading objects"))
        progress = doing.stages(stages(load, hta=arguments.hta))
        report = analyze(load, manifest, hta=arguments.hta, progress=progress)
    return show(report, arguments)

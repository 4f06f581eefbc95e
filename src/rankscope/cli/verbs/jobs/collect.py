"""``rankscope collect``."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs
from rankscope.cli.parts.audit_log import note
from rankscope.cli.parts.console import say
from rankscope.errors import ConfigError, RunDirError
from rankscope.rundir.urls import is_url, url_of

__all__ = ["add_collect", "collect_verb"]


def add_collect(verbs: Verbs) -> None:
    """Add the verb."""
    collect = verbs.add_parser(
        "collect", help="bring the run directories of nodes that share no folder together in one",
        description="Bring the run directories of nodes that share no folder together in one. "
        "The key that both ends need is read from RANKSCOPE_COLLECT_KEY.",
    )  # fmt: skip
    collect.add_argument(
        "run", type=Path, metavar="RUN", help="this node's run directory, or a new one to collect into"
    )
    way = collect.add_mutually_exclusive_group(required=True)
    way.add_argument("--listen", metavar="[HOST:]PORT", help="take the parts of other nodes into RUN, over the network")
    way.add_argument("--to", metavar="WHERE", help="send RUN to HOST:PORT, or put it into a store: s3://, gs:// ...")
    way.add_argument(
        "--from", dest="parts", nargs="+", type=Path, metavar="PART",
        help="into RUN from these run directories, or from the URL that --to put them to",
    )  # fmt: skip
    collect.add_argument("--nodes", type=int, metavar="N", help="with --listen: of the job, that of RUN included")
    collect.add_argument("--wait", type=float, default=600.0, metavar="S", help="seconds for the other end (600)")
    collect.set_defaults(verb=collect_verb)


def collect_verb(arguments: argparse.Namespace) -> int:
    """Send this node's part, or combine parts. Returns the exit code."""
    if arguments.listen is not None:
        return _listen(arguments)
    if arguments.to is not None:
        return _send(arguments)
    from rankscope.collecting.collect import collect

    with contextlib.ExitStack() as stack:
        parts = [path for given in arguments.parts for path in stack.enter_context(_here(given))]
        collecting = collect(parts, arguments.run)
    return _told(arguments.run, collecting.nodes, collecting.notes)


@contextlib.contextmanager
def _here(given: Path) -> Iterator[list[Path]]:
    from rankscope.collecting.stored import taken_parts

    url = url_of(given)
    if url is None:
        yield [given]
        return
    with taken_parts(url) as parts:
        yield parts


def _send(arguments: argparse.Namespace) -> int:
    from rankscope.progress import show_progress

    if is_url(arguments.to):
        from rankscope.collecting.stored import put_part

        count = put_part(arguments.run, arguments.to)
    else:
        from rankscope.collecting.send import send_part
        from rankscope.collecting.wire import KEY, address_in, key_from

        key = key_from(dict(os.environ))
        if key is None:
            raise ConfigError(f"{KEY} is not set; give it the key that `rankscope collect --listen` has")
        with show_progress(say) as doing:
            progress = doing.bytes("sending")
            to = address_in(arguments.to)
            count = send_part(arguments.run, to, key, wait_s=arguments.wait, sent=progress)
    note("sent", [arguments.run], to=arguments.to)
    print(f"{arguments.run}: {count} file(s) sent to {arguments.to}")
    return 0


def _listen(arguments: argparse.Namespace) -> int:
    from rankscope.collecting.collect import Collecting
    from rankscope.collecting.parts import part_of
    from rankscope.collecting.receive import Receiver
    from rankscope.collecting.wire import KEY, address_in, key_from
    from rankscope.rundir.layout import RunDir

    if arguments.nodes is None or arguments.nodes < 1:
        raise ConfigError("--listen needs --nodes N, the number of nodes of the job")
    run = RunDir(arguments.run)
    key = key_from(dict(os.environ))
    shown = "" if key is not None else f"{KEY}={secrets.token_hex(16)} "
    key = key or shown.strip().partition("=")[2].encode()
    collecting = Collecting(run, part_of(run.path).nodes if run.ended else [])
    receiver = Receiver(collecting, address_in(arguments.listen), key, arguments.nodes, say)
    here = f"{arguments.listen.rpartition(':')[0] or socket.gethostname()}:{receiver.port}"
    say(f"on each other node: {shown}rankscope collect RUN --to {here}")
    whole = receiver.run(arguments.wait)
    if collecting.nodes:
        collecting.finish()
    code = _told(run.path, collecting.nodes, collecting.notes)
    if whole:
        return code
    say(f"{arguments.nodes - len(collecting.nodes)} of {arguments.nodes} nodes sent nothing; the same command goes on")
    return RunDirError.exit_code


def _told(run: Path, nodes: list[str], notes: list[str]) -> int:
    note("collected", [run], nodes=" ".join(nodes))
    print(f"{run}: parts of {len(nodes)} node(s): {', '.join(nodes[:8])}{' ...' if len(nodes) > 8 else ''}")
    for text in notes:
        say(text)
    say(f"`rankscope analyze {run} --output {run}/report` writes the report")
    return 0

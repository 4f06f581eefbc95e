"""``rankscope redact`` and ``rankscope verify``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs, add_identity
from rankscope.cli.parts.audit_log import note
from rankscope.cli.parts.console import say
from rankscope.cli.parts.sealed import OF_MANIFEST, opened_runs, refuse_beside
from rankscope.errors import ConfigError, ForeignFileError
from rankscope.records.manifest import RunManifest
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit

__all__ = ["add_privacy", "redact_verb", "verify_verb"]

_MOST_LISTED = 12
_MOST_TEXT = 1 << 30


def add_privacy(verbs: Verbs) -> None:
    """Add the verbs."""
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
    add_identity(redact)
    redact.set_defaults(verb=redact_verb)

    verify = verbs.add_parser("verify", help="whether the files of a run are what they were when it ended")
    verify.add_argument("path", type=Path, metavar="RUN", help="a run directory")
    verify.add_argument("--key", type=Path, metavar="FILE", help="the public key that must have signed it (Ed25519)")
    add_identity(verify)
    verify.set_defaults(verb=verify_verb)


def redact_verb(arguments: argparse.Namespace) -> int:
    """Copy a run without identifying names of models, machines and people; or replace tokens by their names."""
    if arguments.reveal is not None:
        return _reveal(arguments.reveal, arguments.path)
    if arguments.path is None or arguments.output is None:
        raise ConfigError("name what to copy, and with -o the folder of the copy; see rankscope redact --help")

    from rankscope.privacy.naming.policy import load_policy
    from rankscope.privacy.redact import redact
    from rankscope.progress import show_progress

    policy = load_policy(arguments.level, arguments.policy)
    refuse_beside([arguments.path], arguments.output, "-o")
    with opened_runs([arguments.path], arguments) as (path,), show_progress(say) as doing:
        copy = redact(
            path,
            arguments.output,
            policy,
            key=arguments.key,
            report=arguments.report,
            progress=doing.bytes("redacting traces"),
        )
    note("redacted", [arguments.path], level=policy.level, copy=str(copy.output))
    if copy.report is not None:
        say(copy.report.verdict.sentence)
    elif copy.no_report:
        say(f"no report: {copy.no_report}")
    for line in _left_out(copy.left_out):
        say(line)
    say(f"{copy.key} turns {copy.tokens:,} tokens back, for you only: never pass it on")
    print(f"{copy.output}: {copy.files} files, level {policy.level}")
    return 0


def verify_verb(arguments: argparse.Namespace) -> int:
    """Compare the files of a run with its manifest and signature. Returns the exit code."""
    from rankscope.privacy.verify import verify

    run_dir = RunDir(arguments.path)
    if run_dir.sealed_manifest.exists() and not run_dir.manifest.exists():
        with opened_runs([arguments.path], arguments, wanted=OF_MANIFEST.match) as (plain,):
            manifest = read_record(RunManifest, RunDir(plain).manifest, run_limit(RunDir(plain)))
    else:
        manifest = None
    found = verify(arguments.path, key=arguments.key, manifest=manifest)
    note("verified", [arguments.path], found="whole" if not found.wrong else f"{len(found.wrong)} wrong")
    for line in found.wrong:
        print(line)
    for line in found.remarks:
        say(line)
    if found.wrong:
        say(f"{arguments.path}: not what it was: {len(found.wrong)} file(s), {found.files} are")
        return ForeignFileError.exit_code
    signed = ", signed" if found.signed_by is not None else ""
    print(f"{arguments.path}: {found.files} files are as they were{signed}")
    return 0


def _left_out(files: dict[str, str]) -> list[str]:
    """Return a line for each reason, with the files that are not in the copy for it.

    Args:
        files: file -> reason.
    """
    reasons = Counter(files.values())
    lines = []
    for reason, count in reasons.most_common():
        names = [name for name, why in files.items() if why == reason]
        some = ", ".join(names[:_MOST_LISTED]) + (f" and {count - _MOST_LISTED} more" if count > _MOST_LISTED else "")
        lines.append(f"not in the copy ({reason}): {some}")
    return lines


def _reveal(key: Path, path: Path | None) -> int:
    """Print a file, or standard input, with every known token replaced by its name."""
    from rankscope.privacy.naming.tokens import load_key, reveal
    from rankscope.rundir.foreign import read_foreign

    tokens = load_key(key)
    data = sys.stdin.buffer.read() if path is None else read_foreign(path, _MOST_TEXT)
    sys.stdout.buffer.write(reveal(data.decode("utf-8", "surrogateescape"), tokens).encode("utf-8", "replace"))
    return 0

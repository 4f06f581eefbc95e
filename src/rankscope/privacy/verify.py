"""Verify that a run is unchanged: every file against the manifest, and the manifest against its signature."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope.errors import ConfigError, ForeignFileError, RunDirError
from rankscope.node.gathering.signing import signed_message
from rankscope.privacy.origin import origin_of
from rankscope.records.manifest import FileSum, RunManifest
from rankscope.rundir.audit import AUDITS
from rankscope.rundir.files import sha256_of
from rankscope.rundir.foreign import read_foreign
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit

__all__ = ["Verified", "verify"]

_MADE_LATER = re.compile(
    rf"report/|live/|metrics\.prom\Z|stuck/question|{AUDITS}\Z|run\.json(?:\.age)?(?:\.sig)?\Z|.*/rank_\d+\.parquet\Z"
)
"""Files that are made from a run, and renewed; they are not signed."""
_MOST_SIGNATURE_BYTES = 1 << 16


@dataclass(slots=True)
class Verified:
    """Result of the verification. The run is unchanged if :attr:`wrong` is empty."""

    files: int = 0
    """Number of files that match the manifest."""
    wrong: list[str] = field(default_factory=list)
    """A sentence for each file that does not match."""
    remarks: list[str] = field(default_factory=list)
    signed_by: str | None = None
    """Public key, in OpenSSH format, whose signature matches the manifest."""


def verify(run: Path, *, key: Path | None = None, manifest: RunManifest | None = None) -> Verified:
    """Compare all files of a run with its manifest.

    Args:
        run: the run directory.
        key: file with the public key that must have signed it (OpenSSH or PEM).
        manifest: of an encrypted run, if it was decrypted already.

    Raises:
        RunDirError: there is no manifest.
        ConfigError: the key cannot be used, or a library is missing.
    """
    run_dir = RunDir(run)
    if not run_dir.ended:
        raise RunDirError(f"{run} holds no run that has ended (no run.json); only such a run can be verified")
    found = Verified()
    if manifest is None:
        try:
            manifest = read_record(RunManifest, run_dir.manifest, run_limit(run_dir))
        except ForeignFileError as error:
            found.wrong.append(f"run.json: changed or damaged: {error}")
            return found
    _signature(run_dir, manifest, key, found)
    if not manifest.files:
        found.remarks.append(
            "run.json holds no sums of files: it was written by an older rankscope; nothing else is known"
        )
        return found
    _files(run_dir, manifest, found)
    return found


def _files(run_dir: RunDir, manifest: RunManifest, found: Verified) -> None:
    changed: dict[str, str] = {}
    for name, known in sorted(manifest.files.items()):
        path = run_dir.path / name
        try:
            if path.is_symlink() or not path.is_file():
                how = "replaced by something that is no file" if os.path.lexists(path) else "lost"
                found.wrong.append(f"{name}: {how}")
            elif (sha256 := sha256_of(path)) != known.sha256:
                changed[name] = sha256
            else:
                found.files += 1
        except OSError as error:
            found.wrong.append(f"{name}: cannot be read ({error.strerror})")
    for name in changed:
        how = origin_of(run_dir, name, changed, manifest) or _changed(run_dir.path / name, manifest.files[name])
        found.wrong.append(f"{name}: {how}")
    for path in _all(run_dir.path):
        name = path.relative_to(run_dir.path).as_posix()
        if name not in manifest.files and not _MADE_LATER.match(name):
            found.wrong.append(f"{name}: added: the manifest does not know it")


def _changed(path: Path, known: FileSum) -> str:
    size = path.stat().st_size if path.exists() else 0
    if size < known.bytes:
        return f"truncated: {size} of {known.bytes} bytes" + ("" if size else ", nothing is left")
    return "changed" + (f": {size} bytes, and there were {known.bytes}" if size != known.bytes else "")


def _all(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(where, name) for name in sorted(names))


def _signature(run_dir: RunDir, manifest: RunManifest, key: Path | None, found: Verified) -> None:
    if not os.path.lexists(run_dir.signature):
        text = "it is not signed: who changed a file may have changed its sum (store.signing_key signs runs)"
        (found.remarks if key is None else found.wrong).append(f"run.json: {text}")
        return
    try:
        said = json.loads(read_foreign(run_dir.signature, _MOST_SIGNATURE_BYTES))
        public, signature = _public(said["public_key"].encode()), bytes.fromhex(said["signature"])
        name, sha256 = str(said["file"]), str(said["sha256"])
        bound = str(said["run_id"]), int(said["attempts"])
    except (ForeignFileError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        found.wrong.append(f"run.json.sig: no signature ({error})")
        return
    written = run_dir.path / name if name in (run_dir.manifest.name, run_dir.sealed_manifest.name) else run_dir.manifest
    try:
        actual = sha256_of(written)
    except OSError as error:
        found.wrong.append(f"{written.name}: cannot be read ({error.strerror})")
        return
    if not _fits(public, signature, signed_message(*bound, sha256)):
        found.wrong.append("run.json.sig: changed: the signature is not that of the key it names")
    elif bound != (manifest.run_id, manifest.attempts):
        found.wrong.append(f"run.json.sig: replayed: it is of run {bound[0]:.80} with {bound[1]} attempt(s)")
    elif actual != sha256:
        found.wrong.append(f"{written.name}: changed since it was signed")
    else:
        found.signed_by = said["public_key"]
        if key is None:
            found.remarks.append(f"signed by {said['public_key']}; with --key this must be the key that is given")
        elif _raw(_public(read_foreign(key, _MOST_SIGNATURE_BYTES))) != _raw(public):
            found.wrong.append(f"run.json.sig: signed by another key: {said['public_key']}")


def _public(data: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise ConfigError(
            f"the signature needs the library cryptography ({error}); install it with: pip install 'rankscope[sign]'"
        ) from error
    load: Any = serialization.load_pem_public_key if b"BEGIN" in data else serialization.load_ssh_public_key
    try:
        public = load(data)
    except Exception as error:  # the library's own exceptions
        raise ConfigError(f"no public key: {error}") from error
    if not isinstance(public, Ed25519PublicKey):
        raise ConfigError("the public key is no Ed25519 key")
    return public


def _raw(public: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return bytes(public.public_bytes(Encoding.Raw, PublicFormat.Raw))


def _fits(public: Any, signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(signature, message)
    except InvalidSignature:
        return False
    return True

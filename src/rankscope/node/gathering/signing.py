"""Signature of run.json by an Ed25519 key, with the library ``cryptography``, which is loaded only if a key is
configured."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rankscope.errors import ConfigError, ForeignFileError
from rankscope.records.manifest import RunManifest
from rankscope.rundir.files import rewrite
from rankscope.rundir.foreign import read_foreign
from rankscope.rundir.layout import RunDir

__all__ = ["load_signing_key", "sign", "signed_message"]

_MOST_KEY_BYTES = 1 << 16
_INSTALL = "install it with: pip install 'rankscope[sign]'"


def load_signing_key(path: Path) -> Any:
    """Load an Ed25519 private key, in PEM or OpenSSH format, without a passphrase.

    Raises:
        ConfigError: it cannot be read, is another kind of key, or the library is missing.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise ConfigError(f"store.signing_key needs the library cryptography ({error}); {_INSTALL}") from error
    try:
        data = read_foreign(path, _MOST_KEY_BYTES)
        openssh = b"OPENSSH PRIVATE KEY" in data
        load: Any = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
        key = load(data, password=None)
    except ForeignFileError as error:
        raise ConfigError(f"store.signing_key: {error}") from error
    except Exception as error:  # the library's own exceptions
        raise ConfigError(f"store.signing_key: {path} holds no key that can be used ({error})") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"store.signing_key: {path} is no Ed25519 key; make one with: ssh-keygen -t ed25519 -N ''")
    return key


def signed_message(run_id: str, attempts: int, sha256: str) -> bytes:
    """Return the message to be signed, which binds the run and its number of attempts to the checksum of the
    manifest."""
    return json.dumps(["rankscope run 1", run_id, attempts, sha256]).encode()


def sign(run_dir: RunDir, manifest: RunManifest, key: Any) -> None:
    """Write the signature of the manifest as stored, by a key of :func:`load_signing_key`.

    Raises:
        OSError: the manifest cannot be read, or the signature not be written.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    written = run_dir.manifest if run_dir.manifest.exists() else run_dir.sealed_manifest
    sha256 = hashlib.sha256(written.read_bytes()).hexdigest()
    record = {
        "algorithm": "ed25519",
        "file": written.name,
        "run_id": manifest.run_id,
        "attempts": manifest.attempts,
        "sha256": sha256,
        "public_key": key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
        "signature": key.sign(signed_message(manifest.run_id, manifest.attempts, sha256)).hex(),
    }
    rewrite(run_dir.signature, json.dumps(record, indent=1))

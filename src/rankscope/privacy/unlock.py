"""An encrypted run, opened for as long as it is looked at: in a private folder on this machine's own disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rankscope.errors import ConfigError, ForeignFileError
from rankscope.node.manifest import NodeResult, build_manifest
from rankscope.records.codec import to_json
from rankscope.records.manifest import RunManifest
from rankscope.records.spec import AgentSpec
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit
from rankscope.rundir.sealing import SEALED, identities_of, unseal

__all__ = ["is_sealed", "opened"]

_MOST_BYTES = 1 << 36


def is_sealed(path: Path) -> bool:
    """Whether a path is an encrypted file, or a folder with such files."""
    if not path.is_dir():
        return path.suffix == SEALED
    return any(name.endswith(SEALED) for _, _, names in os.walk(path) for name in names)


@contextlib.contextmanager
def opened(path: Path, identity: Path | None) -> Iterator[Path]:
    """The path of what can be read: ``path`` itself where it is not encrypted, else a copy that is removed in the end.

    Raises:
        ConfigError: it is encrypted and no key was given, or the key cannot be used.
        ForeignFileError: it was encrypted for others, or is damaged.
    """
    if not is_sealed(path):
        yield path
        return
    if identity is None:
        raise ConfigError(f"{path} is encrypted (age); give the key of a recipient with --identity FILE")
    identities = identities_of(identity)
    folder = Path(tempfile.mkdtemp(prefix="rankscope_opened_"))  # 0700
    try:
        yield _copied(path, folder / path.name, identities)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copied(path: Path, target: Path, identities: list[object]) -> Path:
    if not path.is_dir():
        target = target.with_name(target.name.removesuffix(SEALED))
        unseal(path, target, identities, _MOST_BYTES)
        return target
    for where, _, names in os.walk(path):
        into = target / Path(where).relative_to(path)
        into.mkdir(parents=True, exist_ok=True)
        for name in sorted(names):
            if name.endswith(SEALED):
                unseal(Path(where, name), into / name.removesuffix(SEALED), identities, _MOST_BYTES)
            elif not (into / name).exists() and Path(where, name).is_file():
                shutil.copyfile(Path(where, name), into / name)
    with contextlib.suppress(ForeignFileError):
        _put_nodes_together(RunDir(target))
    return target


def _put_nodes_together(run_dir: RunDir) -> None:
    """The node that wrote run.json could not read what the others had left; who has the key can."""
    manifest = read_record(RunManifest, run_dir.manifest, run_limit(run_dir))
    spec = read_record(AgentSpec, run_dir.agent_spec)
    paths = sorted(run_dir.nodes.glob("*.result.json"))
    results = [read_record(NodeResult, path, run_limit(run_dir)) for path in paths]
    if len(results) < 2:
        return
    whole = build_manifest(
        results, run_id=manifest.run_id, argv=manifest.argv, config=manifest.config, schedule=spec.schedule,
        versions=manifest.versions,
    )  # fmt: skip
    whole.files = dict(sorted({**{k: v for r in results for k, v in r.files.items()}, **manifest.files}.items()))
    run_dir.manifest.write_text(to_json(whole), encoding="utf-8")

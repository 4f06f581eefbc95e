"""Open an encrypted run temporarily: in a private folder on this machine's own disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rankscope.errors import ConfigError, ForeignFileError
from rankscope.node.finish import is_head, nodes_of, stood_still
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
    """Return whether a path is an encrypted file, or a folder with such files."""
    if not path.is_dir():
        return path.suffix == SEALED
    return any(name.endswith(SEALED) for _, _, names in os.walk(path) for name in names)


@contextlib.contextmanager
def opened(path: Path, identity: Path | None, *, wanted: Callable[[str], object] = lambda _: True) -> Iterator[Path]:
    """Yield a readable path: ``path`` itself if it is not encrypted, else a copy that is removed at the end.

    Args:
        path: a run, a folder or a file.
        identity: file with the key.
        wanted: selects the files of a folder that are decrypted, by their path in it, without ``.age``.

    Raises:
        ConfigError: it is encrypted and no key was given, or the key cannot be used.
        ForeignFileError: it was encrypted for other recipients, or is corrupt.
    """
    if not is_sealed(path):
        yield path
        return
    if identity is None:
        raise ConfigError(f"{path} is encrypted (age); give the key of a recipient with --identity FILE")
    identities = identities_of(identity)
    folder = Path(tempfile.mkdtemp(prefix="rankscope_opened_"))  # 0700
    try:
        yield _copied(path, folder / path.resolve().name, identities, wanted)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copied(path: Path, target: Path, identities: list[object], wanted: Callable[[str], object]) -> Path:
    if not path.is_dir():
        target = target.with_name(target.name.removesuffix(SEALED))
        unseal(path, target, identities, _MOST_BYTES)
        return target
    for where, _, names in os.walk(path):
        into = target / Path(where).relative_to(path)
        into.mkdir(parents=True, exist_ok=True)
        for name in sorted(names):
            plain = into / name.removesuffix(SEALED)
            if not wanted(plain.relative_to(target).as_posix()):
                continue
            if name.endswith(SEALED):
                unseal(Path(where, name), plain, identities, _MOST_BYTES)
            elif name + SEALED not in names and Path(where, name).is_file():
                shutil.copyfile(Path(where, name), plain)
    with contextlib.suppress(ForeignFileError):
        _put_nodes_together(RunDir(target))
    return target


def _put_nodes_together(run_dir: RunDir) -> None:
    """Combine the nodes' results: the node that wrote run.json could not read those of the others, the owner of the key
    can."""
    manifest = read_record(RunManifest, run_dir.manifest, run_limit(run_dir))
    paths = sorted(run_dir.nodes.glob("*.result.json"))
    if len(paths) > 1:
        spec = read_record(AgentSpec, run_dir.agent_spec)
        results = [read_record(NodeResult, path, run_limit(run_dir)) for path in paths]
        known: dict[str, Any] = {
            "run_id": manifest.run_id, "argv": manifest.argv, "config": manifest.config, "schedule": spec.schedule,
            "versions": manifest.versions,
        }  # fmt: skip
        heads = [result for result in results if is_head(result, result.node, nodes_of(run_dir))]
        of_one = build_manifest(heads, **known).notes  # the notes as its writer had to see them
        whole = build_manifest(results, **known, notes=[note for note in manifest.notes if note not in of_one])
        whole.files = dict(sorted({**{k: v for r in results for k, v in r.files.items()}, **manifest.files}.items()))
        manifest = whole
    manifest.hang = stood_still(run_dir)
    run_dir.manifest.write_text(to_json(manifest), encoding="utf-8")

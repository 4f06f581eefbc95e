"""Add parts of a run to one run directory, and make its run.json again from the results of all nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.collecting.parts import Part, launch_of, part_of, same_claim
from rankscope.errors import ForeignFileError, RunDirError
from rankscope.node.combined import combined
from rankscope.node.finish import is_head, nodes_of, result_of, small_files
from rankscope.node.gathering.placing import Placing
from rankscope.records.codec import to_json
from rankscope.records.manifest import FileSum
from rankscope.rundir.files import copy_new, place, rewrite, sha256_of
from rankscope.rundir.layout import RunDir
from rankscope.rundir.sealing import sealed_name

__all__ = ["Collecting", "collect"]

_OF_JOB = re.compile(r"nodes/launch\.json|(agent|kept|run)\.json(\.age)?|(requests|announcements)/.*")
"""Files that exist once in a run, and that each part has a different version of."""
_RESULT = re.compile(r"nodes/(.+)\.result\.json(\.age)?")


@dataclass
class Collecting:
    """A run directory to which parts are added.

    Args:
        run_dir: a new run directory, or the one of a node.
    """

    run_dir: RunDir
    nodes: list[str] = field(default_factory=list)
    """Names of the nodes whose parts were added."""
    notes: list[str] = field(default_factory=list)
    """Messages for the user."""

    def add(self, path: Path, part: Part, *, move: bool = False) -> int:
        """Add a part. Existing files are not changed.

        Args:
            path: the folder of its files.
            part: the list of its files.
            move: whether to move the files, which are then on the same disk, instead of copying them.

        Returns:
            Number of added files.

        Raises:
            RunDirError: the part is of another launch, or a node of the same name, or a file of the same name with
                other content exists.
            OSError: a file cannot be read or written.
        """
        run_dir = self.run_dir
        if run_dir.launch.exists() and (ours := launch_of(run_dir)) != part.launch:
            raise RunDirError(
                f"{run_dir.path} is of another job ({ours!r}) than the part of {', '.join(part.nodes)} "
                f"({part.launch!r}); collect it into a run directory of its own"
            )
        for node in part.nodes:
            present, added = run_dir.node_claim(node), RunDir(path).node_claim(node)
            if present.exists() and added.exists() and not same_claim(present, added):
                raise RunDirError(
                    f"two machines of this job call themselves {node}, and {run_dir.path} has the part of the other; "
                    "give each host a name of its own, or number the nodes (--node-rank)"
                )
        wanted = self._wanted(path, part)
        for name, known in wanted.items():
            target = run_dir.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if _replaced(name):
                target.unlink(missing_ok=True)
            if move:
                place(path / name, target)
            elif copy_new(path / name, target) != known.sha256:
                target.unlink()
                raise RunDirError(f"{path / name} has changed while it was copied; is its job still at work?")
        self.nodes += [node for node in part.nodes if node not in self.nodes]
        return len(wanted)

    def finish(self) -> None:
        """Write run.json from the results of all nodes, and remove the signature, which is valid for one node only.

        Raises:
            RunDirError: the parts do not form a run.
            OSError: run.json cannot be written.
        """
        run_dir = self.run_dir
        if not run_dir.manifest.exists():
            if run_dir.sealed_manifest.exists():
                return  # run.json of an encrypted run is combined when the run is opened with the key
            raise RunDirError(f"{run_dir.path} has got no run.json; no part was added")
        try:
            manifest = combined(run_dir)
        except ForeignFileError as error:
            raise RunDirError(f"{run_dir.path}: run.json cannot be made ({error})") from error
        placing = Placing(run_dir)
        small_files(run_dir, placing)
        manifest.files = dict(sorted({**manifest.files, **placing.sums}.items()))
        if run_dir.signature.exists():
            run_dir.signature.unlink()
            self.notes.append("run.json is not signed any more: it was signed by one node, and tells of all now")
        rewrite(run_dir.manifest, to_json(manifest))

    def _wanted(self, path: Path, part: Part) -> dict[str, FileSum]:
        """Return the files to add. All are checked first, so that nothing is changed if one is refused."""
        leads, wanted = self._leads(path, part), dict[str, FileSum]()
        for name, known in part.files.items():
            target = self.run_dir.path / name
            if target.exists():
                of_job = _OF_JOB.fullmatch(name)
                if (of_job and (not leads or name.startswith("nodes/"))) or sha256_of(target) == known.sha256:
                    continue
                if not _replaced(name):
                    raise RunDirError(
                        f"{target} is another file than that of {', '.join(part.nodes)}, and is not overwritten"
                    )
            wanted[name] = known
        return wanted

    def _leads(self, path: Path, part: Part) -> bool:
        """Return whether the part has rank 0, whose node has the records of the whole job."""
        there = RunDir(path)
        if any(sealed_name(there.node_result(node)).exists() for node in part.nodes):
            return False
        results = {node: result_of(there, node) for node in part.nodes}
        return any(result is not None and is_head(result, node, nodes_of(there)) for node, result in results.items())


def _replaced(name: str) -> bool:
    """Return whether a file may be replaced: it exists once in a run, or is a node's result (`rankscope gather`)."""
    return bool(_OF_JOB.fullmatch(name) or _RESULT.fullmatch(name))


def collect(paths: Iterable[Path], into: Path) -> Collecting:
    """Combine run directories of one job into one.

    Args:
        paths: the run directories of the parts.
        into: a new run directory, or the one of a node, whose files are not changed.

    Raises:
        RunDirError: a directory is not a part of the job.
        OSError: a file cannot be read or written.
    """
    collecting = Collecting(RunDir(into))
    for path in paths:
        collecting.add(path, part_of(path))
    collecting.finish()
    return collecting

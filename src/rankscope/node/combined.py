"""Make run.json again from the results of all nodes, where its writer did not have them all."""

from __future__ import annotations

from typing import Any

from rankscope.node.finish import is_head, nodes_of, stood_still
from rankscope.node.manifest import NodeResult, build_manifest
from rankscope.records.manifest import RunManifest
from rankscope.records.spec import AgentSpec
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit

__all__ = ["combined"]


def combined(run_dir: RunDir) -> RunManifest:
    """Return the manifest as its writer would have made it from the results of all nodes in the directory.

    Raises:
        ForeignFileError: run.json, agent.json or a result cannot be read.
    """
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
        # the notes as its writer had to see them, and those that each node has of itself
        known_notes = {*build_manifest(heads, **known).notes, *(note for result in results for note in result.notes)}
        whole = build_manifest(results, **known, notes=[note for note in manifest.notes if note not in known_notes])
        whole.files = dict(sorted({**{k: v for r in results for k, v in r.files.items()}, **manifest.files}.items()))
        manifest = whole
    manifest.hang = stood_still(run_dir)
    return manifest

"""The launcher's side of the node helper: start it; in the end wait for it and the other nodes, and write run.json."""

from __future__ import annotations

import contextlib
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from rankscope import __version__
from rankscope.errors import RunDirError
from rankscope.node.manifest import NodeResult, build_manifest
from rankscope.records.codec import from_json, to_json
from rankscope.records.manifest import RunManifest
from rankscope.records.spec import AgentSpec
from rankscope.rundir.claim import NodeClaim
from rankscope.rundir.files import write_new
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

__all__ = ["NodeHelper"]

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class NodeHelper:
    """A running helper process."""

    run_dir: RunDir
    spool: Spool
    claim: NodeClaim
    argv: list[str]
    config: dict[str, Any]
    process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls, run_dir: RunDir, spool: Spool, claim: NodeClaim, argv: list[str], config: dict[str, Any]
    ) -> NodeHelper:
        """Start the helper; call before the agent's variables are set, since the helper is not a rank."""
        process = subprocess.Popen(
            [sys.executable, "-m", "rankscope.node", str(spool.path), str(run_dir.path.resolve()), claim.node],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return cls(run_dir, spool, claim, argv, config, process)

    def finish(self, exit_code: int, *, progress: Callable[[str], None], patience_s: float) -> RunManifest | None:
        """The job is over: let the helper gather the rest, wait for the other nodes, write the manifest.

        ``patience_s`` bounds the wait for this node's helper, and again for the other nodes.

        Returns:
            The manifest, or None on a node that does not host rank 0.

        Raises:
            RunDirError: the helper left no result in time. The spool then still holds what it had not placed.
        """
        spec = from_json(AgentSpec, self.spool.spec.read_bytes())
        own = self._own_result(progress, patience_s)
        claims = self._claims()
        if not _is_head(own, self.claim.node, claims):
            return None
        results, notes = [own], []
        others = {node for node in claims if node != self.claim.node}
        deadline = time.monotonic() + patience_s
        while others and time.monotonic() < deadline:
            for node in sorted(others):
                if (result := _result(self.run_dir, node)) is not None:
                    results.append(result)
                    others.discard(node)
            if others:
                progress(f"waiting for {len(others)} other node(s): {', '.join(sorted(others)[:4])}")
                time.sleep(_POLL_S)
        notes += [f"node {node} left no result within {patience_s:.0f} s" for node in sorted(others)]
        manifest = build_manifest(
            results,
            run_id=self.claim.run_id,
            argv=self.argv,
            config=self.config,
            schedule=spec.schedule,
            versions=_versions(results),
            exit_code=exit_code,
            notes=notes,
        )
        with contextlib.suppress(RunDirError):
            write_new(self.run_dir.agent_spec, to_json(spec))
        write_new(self.run_dir.manifest, to_json(manifest))
        return manifest

    def _own_result(self, progress: Callable[[str], None], patience_s: float) -> NodeResult:
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        deadline = time.monotonic() + patience_s
        while self.process.poll() is None and time.monotonic() < deadline:
            if pending := len(self.spool.records()):
                progress(f"gathering {pending} trace(s)")
            time.sleep(_POLL_S)
        if self.process.poll() is None:
            self.process.kill()
        elif (result := _result(self.run_dir, self.claim.node)) is not None:
            return result
        raise RunDirError(
            f"traces could not be gathered into {self.run_dir.path} (helper exit code {self.process.poll()}); "
            f"what the ranks left is in {self.spool.path}"
        )

    def _claims(self) -> list[str]:
        return sorted(path.name.removesuffix(".claim.json") for path in self.run_dir.nodes.glob("*.claim.json"))


def _result(run_dir: RunDir, node: str) -> NodeResult | None:
    path = run_dir.node_result(node)
    return from_json(NodeResult, path.read_bytes()) if path.exists() else None


def _is_head(own: NodeResult, node: str, claims: list[str]) -> bool:
    """The node that hosted rank 0 in the last attempt; of a job that never started, the first by name."""
    if own.lives:
        last = max(life.attempt for life in own.lives)
        return any(life.rank == 0 and life.attempt == last for life in own.lives)
    return claims[:1] == [node]


def _versions(results: list[NodeResult]) -> dict[str, str]:
    torch = {life.torch_version for result in results for life in result.lives if life.torch_version}
    versions = {"rankscope": __version__, "python": platform.python_version(), "torch": ", ".join(sorted(torch))}
    for name in ("HolisticTraceAnalysis", "hydra-core"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {key: value for key, value in versions.items() if value}

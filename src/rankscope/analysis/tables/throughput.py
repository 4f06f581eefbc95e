"""Rates of the job, from what the script said that a step processes."""

from __future__ import annotations

from rankscope.records.from_script import Throughput
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport

__all__ = ["throughput"]


def throughput(report: ClusterReport, manifest: RunManifest | None) -> Throughput | None:
    """Return the rates at the report's step time; None if no rank of the last attempt said anything.

    The lowest rank that said something counts.
    """
    processes = manifest.lives if manifest is not None else []
    last = max((process.attempt for process in processes), default=0)
    spoke = [process for process in processes if process.attempt == last and process.described]
    if not spoke:
        return None
    said = min(spoke, key=lambda process: process.rank).described
    tokens, samples, flop = (said.get(name) for name in ("tokens", "samples", "model_flop"))
    found = Throughput(tokens=tokens, samples=samples, model_flop=flop)
    if not report.verdict.step_ms:
        return found
    second = report.verdict.step_ms / 1e3
    found.tokens_per_s = tokens / second if tokens else None
    found.samples_per_s = samples / second if samples else None
    world = report.run.world_size or (manifest.world_size if manifest is not None else None)
    if flop and world:
        found.tflops_per_rank = flop / second / world / 1e12
        peak = report.efficiency.peak_tflops if report.efficiency is not None else None
        found.mfu_pct = 100.0 * found.tflops_per_rank / peak if peak else None
    return found

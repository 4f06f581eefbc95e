"""A model spread over all ranks: DDP, FSDP2, HSDP, tensor x data and pipeline x data parallel.

Rank r of a mesh with inner size n is (r // n, r % n): tensor peers are
neighbours, pipeline peers world / degree apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

PARALLELS = ("ddp", "fsdp2", "hsdp", "tp", "pp")


@dataclass
class Spread:
    """This rank's part of a job."""

    model: nn.Module
    part: int
    """Index of the part of the data, equal for peers in tensor or pipeline groups."""
    forward_backward: Callable[[tuple[Tensor, ...], Tensor, bool], Tensor | None]
    """Function (inputs, target, reduce at each micro-batch) -> last loss, or None if another stage has it."""


def spread(model: nn.Module, parallel: str, degree: int, micro: int, device: torch.device) -> Spread:
    """Put ``model`` on the device and over the mesh.

    Args:
        model: has ``blocks``; for ``tp`` and ``pp`` also ``plan`` or ``stage``.
        parallel: one of PARALLELS.
        degree: replicas of ``hsdp``, tensor ranks of ``tp``, stages of ``pp``.
        micro: micro-batches a step.
        device: this rank's.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    if world % degree and parallel in PARALLELS[2:]:
        raise SystemExit(f"--degree {degree} does not divide {world} ranks")
    inner = world // degree
    if parallel == "ddp":
        return _plain(_replicate(model, device), rank, micro)
    if parallel == "fsdp2":
        return _plain(_shard(model.to(device), None), rank, micro)
    if parallel == "hsdp":
        mesh = init_device_mesh(device.type, (degree, inner), mesh_dim_names=("replicate", "shard"))
        return _plain(_shard(model.to(device), mesh), rank, micro)
    if parallel == "tp" and inner == 1 and device.type == "cpu":
        # one group: calls of gloo do not say of which group they are
        return _plain(_split(model, init_device_mesh("cpu", (degree,), mesh_dim_names=("tp",))), 0, micro)
    if parallel == "tp":
        mesh = init_device_mesh(device.type, (inner, degree), mesh_dim_names=("dp", "tp"))
        return _plain(_shard(_split(model.to(device), mesh["tp"]), mesh["dp"]), rank // degree, micro)
    mesh = init_device_mesh(device.type, (degree, inner), mesh_dim_names=("pp", "dp"))
    return _pipeline(model, mesh, micro, device)


def criterion(output: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(output.flatten(0, -2).float(), target.flatten())


def _replicate(model: nn.Module, device: torch.device, group: Any = None) -> nn.Module:
    cuda = device.type == "cuda"
    model = model.to(device, torch.bfloat16) if cuda else model.to(device)
    return DistributedDataParallel(model, device_ids=[device.index] if cuda else None, process_group=group)


def _shard(model: Any, mesh: DeviceMesh | None) -> nn.Module:
    cuda = next(model.parameters()).device.type == "cuda"
    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if cuda else MixedPrecisionPolicy()
    )
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)  # in place
    sharded: nn.Module = model
    return sharded


def _split(model: Any, mesh: DeviceMesh) -> nn.Module:
    """Tensor parallel with the sequence sharded between the blocks' matrix products, as Megatron and torchtitan do."""
    parallelize_module(
        model,
        mesh,
        {
            "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    for block in model.blocks:
        columns, rows = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1))
        norm = SequenceParallel()
        parallelize_module(
            block, mesh, {"norm_1": norm, "norm_2": norm, "qkv": columns, "up": columns, "out": rows, "down": rows}
        )
    return model


def _plain(model: Any, part: int, micro: int) -> Spread:
    def forward_backward(inputs: tuple[Tensor, ...], target: Tensor, always: bool) -> Tensor:
        chunks = zip(*(t.chunk(micro) for t in inputs), strict=True)
        for number, (chunk, wanted) in enumerate(zip(chunks, target.chunk(micro), strict=True), start=1):
            reduce = always or number == micro
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(reduce)
            else:
                model.require_backward_grad_sync = reduce  # what no_sync() sets
            loss = criterion(model(*chunk), wanted)
            loss.backward()
        return loss

    return Spread(model, part, forward_backward)


def _pipeline(model: Any, mesh: DeviceMesh, micro: int, device: torch.device) -> Spread:
    index, stages = mesh["pp"].get_local_rank(), mesh["pp"].size()
    module = _replicate(model.stage(index, stages), device, mesh["dp"].get_group())
    stage = PipelineStage(module, index, stages, device, group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, micro, loss_fn=criterion)

    def forward_backward(inputs: tuple[Tensor, ...], target: Tensor, _: bool) -> Tensor | None:
        losses: list[Tensor] | None = [] if stage.is_last else None
        schedule.step(*(inputs if stage.is_first else ()), target=target if stage.is_last else None, losses=losses)
        return losses[-1] if losses else None

    return Spread(module, mesh["dp"].get_local_rank(), forward_backward)

"""What each rank does in a step, for the meshes that people build. Rank numbers as DeviceMesh gives them: the last
dimension of a mesh varies fastest.

Sizes are those of a small model: some hundred microseconds a kernel, a step of 8 to 50 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .engine import US, Op

__all__ = ["JOBS", "Mesh", "build"]

MATMUL = (4096, 1024)


@dataclass(frozen=True, slots=True)
class Mesh:
    """Named dimensions and their sizes, outermost first, as in ``init_device_mesh``."""

    axes: tuple[str, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def place(self, rank: int, axis: str) -> int:
        """The coordinate of a rank along ``axis``."""
        return int(np.unravel_index(rank, self.shape)[self.axes.index(axis)])

    def group(self, rank: int, axis: str) -> tuple[int, ...]:
        """The ranks that differ from ``rank`` in ``axis`` only."""
        place = list(np.unravel_index(rank, self.shape))
        dimension, members = self.axes.index(axis), []
        for other in range(self.shape[dimension]):
            place[dimension] = other
            members.append(int(np.ravel_multi_index(place, self.shape)))
        return tuple(members)


class _Step:
    """Collects the operations of one rank's step; keys count up, so that all ranks of a role agree on them."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self.mesh, self.rank = mesh, rank
        self.ops: list[Op] = []

    def _add(self, op: Op) -> None:
        self.ops.append(replace(op, key=len(self.ops)))

    def kernel(self, device_us: float, name: str = "mm", host_us: float = 14, shape: tuple[int, ...] = MATMUL) -> None:
        self._add(Op("kernel", name=name, host=int(host_us * US), device=int(device_us * US), shape=shape))

    def host(self, us: float, name: str = "aten::detach") -> None:
        self._add(Op("host", name=name, host=int(us * US)))

    def input(self, us: float = 60) -> None:
        self._add(Op("input", host=int(us * US)))

    def call(
        self, kind: str, axis: str, elements: int, transfer_us: float, label: str = "", out: int | None = None
    ) -> None:
        """A collective of this rank's group along ``axis``, on the group's own stream."""
        group = self.mesh.group(self.rank, axis)
        if len(group) > 1:
            self._add(
                Op("call", host=18 * US, device=int(transfer_us * US), stream=f"nccl:{axis}", group=group, axis=axis,
                   kind=kind, elements=elements, out_elements=elements if out is None else out, label=label)
            )  # fmt: skip

    def pair(
        self, kind: str, axis: str, peer: int, elements: int, transfer_us: float, label: str, ahead: bool = False
    ) -> None:
        low, high = sorted((self.rank, peer))
        self._add(
            Op("pair", host=16 * US, device=int(transfer_us * US), stream=f"nccl:{axis}:{low}-{high}:{kind}",
               group=self.mesh.group(self.rank, axis), axis=axis, kind=kind, elements=elements, out_elements=elements,
               peer=peer, label=label, ahead=ahead)
        )  # fmt: skip

    def ring(self, axis: str, elements: int, transfer_us: float, label: str) -> None:
        self._add(
            Op("ring", host=20 * US, device=int(transfer_us * US), stream=f"nccl:{axis}",
               group=self.mesh.group(self.rank, axis), axis=axis, kind="ring", elements=elements,
               out_elements=elements, label=label)
        )  # fmt: skip

    def join(self, label: str) -> None:
        if any(op.label == label and op.what != "join" for op in self.ops):
            self._add(Op("join", label=label, host=2 * US))

    def sync(self, name: str = "aten::_local_scalar_dense") -> None:
        self._add(Op("sync", name=name, host=5 * US))

    def optimizer(self, kernels: int = 3, device_us: float = 90) -> None:
        for _ in range(kernels):
            self.kernel(device_us, "multi_tensor_apply", host_us=25, shape=(1 << 20,))


def ddp(mesh: Mesh, rank: int, layers: int = 6, work_us: float = 420) -> list[Op]:
    """Replicas; gradients are all-reduced in buckets of two layers beside the backward."""
    step = _Step(mesh, rank)
    step.input()
    for _ in range(layers):
        step.kernel(work_us)
        step.kernel(work_us / 6, "gelu")
    for layer in range(layers):
        step.kernel(work_us, "mm_grad_input")
        step.kernel(work_us, "mm_grad_weight")
        if layer % 2:
            step.call("allreduce", "dp", 3_000_000 + layer, 380, label=f"bucket{layer}")
    for layer in range(1, layers, 2):
        step.join(f"bucket{layer}")
    step.optimizer()
    step.sync()
    return step.ops


def fsdp(mesh: Mesh, rank: int, layers: int = 6, work_us: float = 480, norms_us: float = 0) -> list[Op]:
    """Sharded parameters: each layer's are gathered one layer ahead; gradients are reduced and scattered.

    Of ``norms_us`` each layer begins with a kernel that is bound by memory and always runs beside a gathering.
    """
    step = _Step(mesh, rank)
    size = mesh.size
    shard = 1_500_000 // size
    step.input()
    step.call("all_gather", "dp", shard, 170, label="ag0", out=shard * size)
    for layer in range(layers):
        if layer + 1 < layers:
            step.call("all_gather", "dp", shard, 170, label=f"ag{layer + 1}", out=shard * size)
        step.join(f"ag{layer}")
        if norms_us:
            step.kernel(norms_us, "norm")
        step.kernel(work_us)
        step.kernel(work_us / 6, "gelu")
    step.call("all_gather", "dp", shard, 170, label="bg0", out=shard * size)
    for layer in range(layers):
        if layer + 1 < layers:
            step.call("all_gather", "dp", shard, 170, label=f"bg{layer + 1}", out=shard * size)
        step.join(f"bg{layer}")
        if norms_us:
            step.kernel(norms_us, "norm_grad")
        step.kernel(work_us, "mm_grad_input")
        step.kernel(work_us, "mm_grad_weight")
        step.call("reduce_scatter", "dp", shard * size, 200, label=f"rs{layer}", out=shard)
    step.join(f"rs{layers - 1}")
    step.optimizer()
    step.sync()
    return step.ops


def tp(mesh: Mesh, rank: int, layers: int = 6, work_us: float = 330) -> list[Op]:
    """Tensor parallel, with data parallel around it where the mesh has it."""
    step = _Step(mesh, rank)
    step.input()
    for layer in range(layers):
        for half in "ab":
            step.kernel(work_us)
            step.kernel(work_us / 6, "gelu")
            step.call("allreduce", "tp", 2_000_000, 110, label=f"f{layer}{half}")
            step.join(f"f{layer}{half}")
    for layer in range(layers):
        for half in "ab":
            step.kernel(work_us, "mm_grad_input")
            step.kernel(work_us, "mm_grad_weight")
            step.call("allreduce", "tp", 2_000_000, 110, label=f"b{layer}{half}")
            step.join(f"b{layer}{half}")
        if "dp" in mesh.axes and layer % 2:
            step.call("allreduce", "dp", 2_500_000 + layer, 300, label=f"bucket{layer}")
    for layer in range(1, layers, 2):
        step.join(f"bucket{layer}")
    step.optimizer()
    step.sync()
    return step.ops


def pipeline(
    mesh: Mesh,
    rank: int,
    micro: int = 8,
    work_us: float = 900,
    own_shapes: bool = False,
    posted_ahead: bool = False,
    message_us: float = 60,
) -> list[Op]:
    """One forward, one backward (1F1B); gradients over the replicas at the end. With ``own_shapes`` no two stages have
    kernels of one size. ``posted_ahead``: receives are posted before the compute launched earlier has ended."""
    step = _Step(mesh, rank)
    stages = mesh.group(rank, "pp")
    stage, last = stages.index(rank), len(stages) - 1
    step.input()

    def forward(batch: int) -> None:
        if stage:
            step.pair("recv", "pp", stages[stage - 1], 1_000_000, message_us, f"rf{batch}", posted_ahead)
            step.join(f"rf{batch}")
        step.kernel(work_us, "mm")
        step.kernel(work_us / 6, "gelu")
        if stage < last:
            step.pair("send", "pp", stages[stage + 1], 1_000_000, message_us, f"sf{batch}")

    def backward(batch: int) -> None:
        if stage < last:
            step.pair("recv", "pp", stages[stage + 1], 1_000_000, message_us, f"rb{batch}", posted_ahead)
            step.join(f"rb{batch}")
        step.kernel(work_us, "mm_grad_input")
        step.kernel(work_us, "mm_grad_weight")
        if stage:
            step.pair("send", "pp", stages[stage - 1], 1_000_000, message_us, f"sb{batch}")

    ahead = min(last - stage, micro)
    for batch in range(ahead):
        forward(batch)
    for batch in range(micro - ahead):
        forward(ahead + batch)
        backward(batch)
    for batch in range(micro - ahead, micro):
        backward(batch)
    if "dp" in mesh.axes:
        step.call("allreduce", "dp", 6_000_000, 700, label="grads")
        step.join("grads")
    step.optimizer()
    step.sync()
    if own_shapes:
        return [replace(op, shape=(op.shape[0] + 128 * stage, *op.shape[1:])) if op.shape else op for op in step.ops]
    return step.ops


def experts(mesh: Mesh, rank: int, layers: int = 4, work_us: float = 420, uneven: float = 0.005) -> list[Op]:
    """Mixture of experts: tokens travel to their expert and back in every layer; shared weights are data parallel.

    Each rank sends more than the one before it, by the share ``uneven`` of what the first sends; all compute alike.
    """
    step = _Step(mesh, rank)
    step.input()
    tokens = 1_000_000 + int(1_000_000 * uneven) * rank
    for direction, passes in (("f", ("mm",)), ("b", ("mm_grad_input", "mm_grad_weight"))):
        for layer in range(layers):
            for name in passes:
                step.kernel(work_us, name)
            for part in ("dispatch", "combine"):
                label = f"{direction}{layer}{part}"
                step.call("all_to_allv", "ep", tokens + layer, 190, label=label, out=tokens - layer)
                step.join(label)
                if part == "dispatch":
                    for name in passes:
                        step.kernel(1.3 * work_us, f"expert_{name}", shape=(8192, 1024))
            if direction == "b":
                step.call("allreduce", "dp_ep", 1_200_000 + layer, 240, label=f"bucket{layer}")
    for layer in range(layers):
        step.join(f"bucket{layer}")
    step.optimizer()
    step.sync()
    return step.ops


def context(mesh: Mesh, rank: int, layers: int = 4, work_us: float = 260) -> list[Op]:
    """Context parallel: keys and values go round a ring while attention works on those of the last round."""
    step = _Step(mesh, rank)
    size = mesh.size
    step.input()
    for direction, factor in (("f", 1.0), ("b", 2.0)):
        for layer in range(layers):
            step.kernel(1.5 * work_us * factor, "mm")
            for turn in range(size):
                if turn + 1 < size:
                    step.ring("cp", 800_000, 120, f"{direction}{layer}.{turn}")
                step.kernel(work_us * factor * 4 / size, "flash_attention", shape=(16, 1024, 128))
                if turn + 1 < size:
                    step.join(f"{direction}{layer}.{turn}")
            if direction == "b":
                step.call("allreduce", "dp_cp", 1_500_000 + layer, 260, label=f"bucket{layer}")
    for layer in range(layers):
        step.join(f"bucket{layer}")
    step.optimizer()
    step.sync()
    return step.ops


JOBS: dict[str, tuple[Callable[..., list[Op]], Callable[[int], Mesh]]] = {
    "ddp": (ddp, lambda n: Mesh(("dp",), (n,))),
    "fsdp": (fsdp, lambda n: Mesh(("dp",), (n,))),
    "tp": (tp, lambda n: Mesh(("tp",), (n,))),
    "tpdp": (tp, lambda n: Mesh(("dp", "tp"), (n // (4 if n > 4 else 2), 4 if n > 4 else 2))),
    "pp": (pipeline, lambda n: Mesh(("pp",), (n,))),
    "ppdp": (pipeline, lambda n: Mesh(("pp", "dp"), (4 if n > 4 else 2, n // (4 if n > 4 else 2)))),
    "ep": (experts, lambda n: Mesh(("ep",), (n,))),
    "cp": (context, lambda n: Mesh(("cp",), (n,))),
}
"""Kind of mesh -> (program of a rank, mesh of so many ranks)."""


def build(kind: str, size: int, **sizes: float) -> tuple[Mesh, list[Sequence[Op]]]:
    """The mesh and one step of every rank."""
    program, shape = JOBS[kind]
    mesh = shape(size)
    if kind in {"ep", "cp"}:  # the same ranks form a second group, for the gradients
        mesh = Mesh((kind, f"dp_{kind}"), (size, 1))
        mesh = _Twice(mesh.axes, mesh.shape)
    return mesh, [program(mesh, rank, **sizes) for rank in range(mesh.size)]


class _Twice(Mesh):
    """A mesh whose second name means the same ranks as the first."""

    def group(self, rank: int, axis: str) -> tuple[int, ...]:
        return tuple(range(self.size))

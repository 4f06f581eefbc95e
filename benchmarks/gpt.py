"""A GPT trained on any mesh with selectable faults, launched by the benchmarks and the GPU tests.

rankscope run --nproc-per-node 2 benchmarks/gpt.py --parallel fsdp2 --fault extra_compute
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Batch, arguments, join, train


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = min(64, width // 4)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        # A tensor-parallel rank has the columns of some heads only.
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (-1, 3, self.head)).permute(3, 0, 2, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed: nn.Module = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head: nn.Module = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def stage(self, index: int, stages: int) -> GPT:
        """Keep only the layers that stage ``index`` of a pipeline runs."""
        self.blocks = nn.ModuleList(
            self.blocks[i] for i in range(len(self.blocks)) if i * stages // len(self.blocks) == index
        )
        if index > 0:
            self.embed = nn.Identity()
        if index < stages - 1:
            self.head = nn.Identity()
        return self


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=16384)
    args = parser.parse_args()

    def make(generator: torch.Generator, stretch: float) -> Batch:
        length = int(args.sequence * stretch)
        tokens = torch.randint(0, args.vocabulary, (args.batch, length + 1), generator=generator)
        return (tokens[:, :-1].contiguous(),), tokens[:, 1:].contiguous()

    join()
    train(GPT(args.vocabulary, args.width, args.layers), make, args)


if __name__ == "__main__":
    main()

"""Train a small GPT with DDP on the CPU. One rank's input pipeline can be made slow, to have something to find.

Plain PyTorch: nothing here knows of rankscope. Run it with any launcher:

    torchrun --nproc-per-node 2 train.py --slow-rank 1 --slow-input 60
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 512, 64, 128, 4, 4


class Text(Dataset[Tensor]):
    """Random tokens, the same on every rank."""

    def __init__(self, samples: int) -> None:
        self.tokens = torch.randint(VOCABULARY, (samples, CONTEXT + 1), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Tensor:
        return self.tokens[index]


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Shape (batch, context, width) in and out."""
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y: Tensor = x + self.feed_forward(self.norm2(x))
        return y


class TinyGPT(nn.Module):
    """Tokens to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, tokens: Tensor) -> Tensor:
        """Shape (batch, context) in, (batch, context, vocabulary) out."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        logits: Tensor = self.head(self.blocks(x))
        return logits


def slow_collate(delay_s: float, samples: list[Tensor]) -> Tensor:
    """Stack samples, as slowly as a storage system on a bad day."""
    time.sleep(delay_s)
    return torch.stack(samples)


def train(steps: int, batch: int, delay_s: float) -> None:
    """The usual loop."""
    torch.manual_seed(0)
    model = DistributedDataParallel(TinyGPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    text = Text(steps * batch * dist.get_world_size())
    loader = DataLoader(
        text,
        batch_size=batch,
        sampler=DistributedSampler(text),
        collate_fn=lambda samples: slow_collate(delay_s, samples),
    )
    started = time.perf_counter()
    for step, tokens in enumerate(loader, start=1):
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % 10 == 0 and dist.get_rank() == 0:
            speed = (time.perf_counter() - started) / 10 * 1e3
            started = time.perf_counter()
            sys.stdout.write(f"step {step:3d}  loss {loss.item():.3f}  {speed:.0f} ms/step\n")


def main() -> None:
    """Parse, join the process group, train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8, help="samples per rank and step")
    parser.add_argument("--slow-rank", type=int, default=-1, help="the rank with a slow input pipeline; -1 for none")
    parser.add_argument("--slow-input", type=float, default=60.0, metavar="MS", help="what it loses in each step")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # ranks share the CPU; more threads would fight each other
    dist.init_process_group("gloo")
    try:
        slow = dist.get_rank() == arguments.slow_rank
        train(arguments.steps, arguments.batch, arguments.slow_input / 1e3 if slow else 0.0)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

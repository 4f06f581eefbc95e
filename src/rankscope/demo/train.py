"""Train a small GPT with DDP on the CPU, with a fault planted for rankscope to find.

The script is plain PyTorch: it uses the table of faults, and nothing of the diagnosis. Run it with any launcher:

    torchrun --nproc-per-node 2 train.py --fault input_stall --bad-rank 1 --size 60
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from rankscope.demo.plant import Plant, parser, planted

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 512, 64, 128, 4, 4
LONGEST = 2 * CONTEXT


class Text(Dataset[Tensor]):
    """Random tokens, the same on every rank."""

    def __init__(self, samples: int) -> None:
        self.tokens = torch.randint(VOCABULARY, (samples, LONGEST + 1), generator=torch.Generator().manual_seed(0))

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
        """Map activations of shape (batch, context, width) to the same shape."""
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y: Tensor = x + self.feed_forward(self.norm2(x))
        return y


class TinyGPT(nn.Module):
    """A small GPT that maps tokens to logits."""

    def __init__(self, words: int = VOCABULARY) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens of shape (batch, context) to logits of shape (batch, context, vocabulary)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        logits: Tensor = self.head(self.blocks(x))
        return logits


def train(steps: int, batch: int, plant: Plant, bucket_cap_mb: float | None = None) -> None:
    """Run an ordinary training loop, with calls at the places where a fault can act."""

    def collate(samples: list[Tensor]) -> Tensor:
        plant.act("input")
        return torch.stack(samples)[:, : sequence_length(plant) + 1]

    def in_backward(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        output.register_hook(lambda _: plant.act("backward"))  # type: ignore[no-untyped-call]

    torch.manual_seed(0)
    network = TinyGPT(int(plant.get("comm_exposed", VOCABULARY)))
    if plant.fault.place == "backward":
        network.blocks[LAYERS // 2].register_forward_hook(in_backward)
    if plant.name == "recompile":
        network.compile(backend="eager", dynamic=False)
    model = DistributedDataParallel(network, bucket_cap_mb=bucket_cap_mb)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    text = Text(steps * batch * dist.get_world_size())
    loader = DataLoader(text, batch_size=batch, sampler=DistributedSampler(text), collate_fn=collate)
    started = time.perf_counter()
    for step, tokens in enumerate(loader, start=1):
        optimizer.zero_grad(set_to_none=True)
        for part in tokens.chunk(int(plant.get("redundant_sync", 1))):
            logits = model(part[:, :-1])
            plant.act("forward")
            loss = functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        plant.step = step
        plant.act("between")
        if step % 10 == 0 and dist.get_rank() == 0:
            speed = (time.perf_counter() - started) / 10 * 1e3
            started = time.perf_counter()
            sys.stdout.write(f"step {step:3d}  loss {loss.item():.3f}  {speed:.0f} ms/step\n")


def sequence_length(plant: Plant) -> int:
    """Return the length in tokens of this rank's next sequences."""
    if plant.name == "recompile" and plant.acts():
        return CONTEXT - plant.step % (CONTEXT // 2)
    return int(CONTEXT * plant.get("uneven_work", 1))


def main() -> None:
    """Parse the arguments, join the process group and train."""
    options = parser(__doc__)
    options.add_argument("--bucket_cap_mb", type=float, help="of gradients that are reduced at once (default: DDP's)")
    arguments = options.parse_args()
    with planted(arguments) as plant:
        train(arguments.steps, arguments.batch, plant, arguments.bucket_cap_mb)


if __name__ == "__main__":
    main()

"""Models unlike the GPT, with faults to order: convolutions, an encoder of stock layers, embeddings with dot products.

rankscope run --nproc-per-node 2 benchmarks/zoo.py --model cnn --fault input_stall@0
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from training import Batch, MakeBatch, arguments, join, train

CLASSES = 1000


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.inner(x))


class CNN(nn.Module):
    """A small ResNet. Under DDP its batch norms bring a broadcast of buffers at the start of each forward pass."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, stride=2, padding=3)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.to(self.stem.weight.dtype))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class Encoder(nn.Module):
    """PyTorch's own encoder layers, without a mask, predicting each token's class."""

    def __init__(self, width: int, depth: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, max(2, width // 96), 3 * width, dropout=0.1, batch_first=True)
            for _ in range(depth)
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Recommender(nn.Module):
    """DLRM in small: bags of embeddings, a bottom and a top MLP, pairwise dot products between."""

    def __init__(self, width: int, depth: int, tables: int, rows: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        pairs, hidden = (tables + 1) * tables // 2, 16 * width
        self.top = nn.Linear(width + pairs, hidden)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU()) for _ in range(depth))
        self.head = nn.Linear(hidden, 2)

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        bottom = self.bottom(dense.to(self.top.weight.dtype))
        bags = torch.stack([bottom, *(table(indices[:, i]) for i, table in enumerate(self.tables))], 1)
        left, right = torch.tril_indices(bags.shape[1], bags.shape[1], -1, device=bags.device)
        x = self.top(torch.cat((bottom, (bags @ bags.mT)[:, left, right]), 1))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def images(batch: int, side: int) -> MakeBatch:
    # few, drawn again and again: to make millions of random pixels a step would take longer than the step
    pixels = torch.randint(0, 256, (2 * batch, 3, side, side), dtype=torch.uint8)

    def make(generator: torch.Generator, stretch: float) -> Batch:
        count = int(batch * stretch)
        chosen = torch.randint(0, len(pixels), (count,), generator=generator)
        return (pixels[chosen],), torch.randint(0, CLASSES, (count,), generator=generator)

    return make


def sentences(batch: int, length: int, vocabulary: int) -> MakeBatch:
    def make(generator: torch.Generator, stretch: float) -> Batch:
        shape = (batch, int(length * stretch))
        tokens = torch.randint(0, vocabulary, shape, generator=generator)
        return (tokens,), torch.randint(0, CLASSES, shape, generator=generator)

    return make


def clicks(batch: int, tables: int, rows: int) -> MakeBatch:
    def make(generator: torch.Generator, stretch: float) -> Batch:
        count = int(batch * stretch)
        dense = torch.randn((count, 13), generator=generator)
        indices = torch.randint(0, rows, (count, tables, 8), generator=generator)
        return (dense, indices), torch.randint(0, 2, (count,), generator=generator)

    return make


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--model", choices=("cnn", "encoder", "recommender"), required=True)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--extent", type=int, default=64, help="side of images, length of sentences, rows of tables")
    args = parser.parse_args()
    join()
    if args.model == "cnn":
        model: nn.Module = CNN(args.width, args.depth)
        make = images(args.batch, args.extent)
    elif args.model == "encoder":
        model = Encoder(args.width, args.depth, vocabulary=8192)
        make = sentences(args.batch, args.extent, 8192)
    else:
        model = Recommender(args.width, args.depth, 8, args.extent)
        make = clicks(args.batch, 8, args.extent)
    train(model, make, args)


if __name__ == "__main__":
    main()

"""Train a tiny GPT-2 with the Trainer of Hugging Face on the CPU, with a fault planted in its data loader.

The model is created from its configuration, so that nothing is downloaded.
"""

from __future__ import annotations

import tempfile

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from rankscope.demo.plant import parser, planted

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 512, 64, 128, 4, 4


class Text(Dataset[Tensor]):
    """Random tokens, the same on every rank."""

    def __init__(self, samples: int) -> None:
        self.tokens = torch.randint(VOCABULARY, (samples, CONTEXT), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Tensor:
        return self.tokens[index]


def main() -> None:
    """Parse the arguments, join the process group and train."""
    arguments = parser(__doc__).parse_args()
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)
    with planted(arguments) as plant, tempfile.TemporaryDirectory() as folder:

        def collate(samples: list[Tensor]) -> dict[str, Tensor]:
            plant.act("input")
            tokens = torch.stack(samples)
            return {"input_ids": tokens, "labels": tokens}

        settings = TrainingArguments(
            folder,
            use_cpu=True,
            ddp_backend="gloo",
            max_steps=arguments.steps,
            per_device_train_batch_size=arguments.batch,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        text = Text(arguments.steps * arguments.batch * 2)
        Trainer(GPT2LMHeadModel(config), settings, train_dataset=text, data_collator=collate).train()


if __name__ == "__main__":
    main()

"""A job of Lightning's own subprocess launcher, whose script is rank 0."""

import lightning
import torch
from common import MODE, STEPS, result, stepped


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(256, 256)

    def training_step(self, batch, index):
        stepped(self.global_rank, index)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def on_train_end(self):
        result(self.global_rank, self.parameters())


torch.manual_seed(0)
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=1000 if MODE == "term" else STEPS, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(32000, 256), batch_size=8))

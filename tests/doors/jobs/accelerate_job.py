"""A training loop of Hugging Face Accelerate."""

import torch
from accelerate import Accelerator
from common import result, stepped, steps

torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(256, 256)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
for step in steps():
    optimizer.zero_grad()
    stepped(accelerator.process_index, step)
    accelerator.backward(model(torch.randn(8, 256)).square().mean())
    optimizer.step()
result(accelerator.process_index, model.parameters())
accelerator.end_training()

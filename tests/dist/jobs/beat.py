"""A job that waits in each fifth step, as a script that reads the loss for its log, and once for very long."""

import time

import torch

SLOW_STEP = 200

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for number in range(SLOW_STEP + 100):
    weight.grad = torch.ones(4)
    if number == SLOW_STEP:
        time.sleep(1.5)
    time.sleep(0.05 if number % 5 == 4 else 0.001)
    optimizer.step()

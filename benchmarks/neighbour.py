"""A neighbour on the same device: matrix products in bursts, busy for a given share of the time.

    python benchmarks/neighbour.py cuda:1 0.5

It says "ready" when it has begun and ends when its standard input is closed.
"""

import os
import sys
import threading
import time

import torch


def main() -> None:
    device, duty = torch.device(sys.argv[1]), float(sys.argv[2])
    threading.Thread(target=lambda: os._exit(0 if sys.stdin.read() is not None else 1), daemon=True).start()
    side, dtype = (4096, torch.bfloat16) if device.type == "cuda" else (256, torch.float32)
    matrix = torch.randn(side, side, device=device, dtype=dtype)
    product = matrix @ matrix
    print("ready", flush=True)
    while True:
        began = time.perf_counter()
        for _ in range(20):
            torch.mm(matrix, matrix, out=product)
        product[0, 0].item()
        time.sleep((time.perf_counter() - began) * (1.0 / duty - 1.0))


if __name__ == "__main__":
    main()

"""Device memory: snapshots of PyTorch's allocator, read in a process with limits, and its totals in traces."""

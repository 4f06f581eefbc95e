"""When a window opens, how the ranks agree on it, and how it is recorded."""

"""When a window opens, how the ranks agree on it, and its life from opening to record."""

"""What counts as a training step, and the log of all of them."""

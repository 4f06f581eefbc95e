"""Beside the training processes, one helper a node: take traces away from the ranks, check them, place them in the
run directory, and in the end say what is there and what is missing."""

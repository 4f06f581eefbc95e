"""Rank traces in, measurements and a cluster report's numbers out. See ``pipeline`` for the order of things."""

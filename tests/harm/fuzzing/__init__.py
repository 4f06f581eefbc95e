"""Mutated inputs: what they are made of (seeds), what is done to them (mutations), and who is given them (worker)."""

"""Kineto's JSON in, typed columns out: the only package that knows this format."""

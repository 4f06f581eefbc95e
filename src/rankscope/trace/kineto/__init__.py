"""From Kineto's JSON to typed columns: the only package that knows this format."""

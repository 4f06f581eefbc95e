"""The default configuration, as Hydra groups."""

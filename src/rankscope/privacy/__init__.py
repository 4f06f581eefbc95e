"""Copies of runs and traces without content that identifies models, machines and people; integrity and encryption of
runs."""

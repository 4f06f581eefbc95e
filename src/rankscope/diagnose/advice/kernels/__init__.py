"""Recommended actions on what the devices run."""

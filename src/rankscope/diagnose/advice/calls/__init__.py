"""Recommended actions on communication, and on how the model is divided among ranks."""

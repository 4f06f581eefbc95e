"""Checks for problems of this node that would prevent or degrade recording, with remedies: ``rankscope doctor``."""

"""Sections on what devices and hosts do."""

"""Verbs that start jobs, watch them, and complete their run directories afterwards."""

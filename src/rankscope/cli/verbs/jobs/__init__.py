"""Verbs that start jobs, watch them and finish what they left."""

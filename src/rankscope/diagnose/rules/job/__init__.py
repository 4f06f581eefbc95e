"""Rules on the whole job: what limits its step, independent of single ranks."""

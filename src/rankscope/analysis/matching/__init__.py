"""Match the same collective on all its ranks."""

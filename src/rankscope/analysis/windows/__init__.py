"""One window of all its ranks: runs the packages before this one, in their order."""

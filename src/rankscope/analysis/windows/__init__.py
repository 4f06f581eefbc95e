"""One window of all its ranks: the rooms before this one, in their order."""

"""The same collective on all its ranks, their clocks on one axis, and who waited for whom."""

"""Analysis of one window of all its ranks: runs the packages rank to stragglers in their order."""

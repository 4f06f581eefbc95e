"""How rank 0's announcements reach the ranks of other nodes: one file a way, and a table."""

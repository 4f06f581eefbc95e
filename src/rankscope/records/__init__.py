"""Records that cross a process or file boundary, one module for each boundary. Standard library only."""

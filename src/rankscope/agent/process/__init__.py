"""What recording does to the process: exits, forks, CUPTI, other profilers, imports."""

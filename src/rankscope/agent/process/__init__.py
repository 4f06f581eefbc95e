"""Effects of recording on the process: exits, forks, CUPTI, other profilers, imports."""

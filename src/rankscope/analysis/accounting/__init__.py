"""Where the time of each rank goes: compute, communication, copies, idle and why."""

"""Accounting for the time of each rank: compute, communication, copies, idle time and its reasons."""

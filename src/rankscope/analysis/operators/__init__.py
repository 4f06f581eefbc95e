"""Operators and Python lines by the time they take, compared between ranks and with the peak performance of the
device."""

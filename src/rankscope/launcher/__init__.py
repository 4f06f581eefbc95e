"""From a command line to a launched, gathered and analysed run. The launching itself is done by torchrun, unchanged."""

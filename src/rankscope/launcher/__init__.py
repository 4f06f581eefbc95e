"""From a command line to a launched, gathered and analysed run. torchrun does the launching, unchanged."""

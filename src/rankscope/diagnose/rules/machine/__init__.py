"""Rules on the state of devices and hosts: clocks, memory, links, and processors that others use too."""

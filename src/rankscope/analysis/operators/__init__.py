"""Which operators and Python lines a rank's time goes to: compared between ranks, and against what the device can."""

"""Rules on single ranks: late ranks, differences between ranks, missing and incomplete traces."""

"""What names are public, and the tokens that stand for all others."""

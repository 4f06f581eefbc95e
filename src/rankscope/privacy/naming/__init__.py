"""Names that are public, and the tokens that replace all others."""

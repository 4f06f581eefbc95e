"""The verdict's words: one file for each answer that it can be."""

"""What can slow a rank down: names, words and advice. Standard library only."""

"""The causes that can slow a rank down: names, wording and advice. Standard library only."""

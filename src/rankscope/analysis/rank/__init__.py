"""Analysis of one rank by itself: its trace prepared for analysis. No module here uses another rank."""

"""One rank by itself: its trace prepared for analysis. Nothing here knows another rank."""

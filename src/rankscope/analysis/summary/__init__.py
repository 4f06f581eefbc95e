"""From one analysed window to the summary of each rank (:class:`rankscope.records.rank_window.RankWindow`)."""

"""From one analysed window to what is kept of each rank (:class:`rankscope.records.rank_window.RankWindow`)."""

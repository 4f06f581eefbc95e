"""From rank traces to measurements and the cluster report. See ``pipeline`` for the order of the stages."""

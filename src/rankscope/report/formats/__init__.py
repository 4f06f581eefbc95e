"""One module for each output format of a ClusterReport."""

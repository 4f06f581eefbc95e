"""The recorded steps as a dependency graph, and the step time under other assumptions by replay."""

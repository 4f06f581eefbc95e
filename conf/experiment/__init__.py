"""Examples of experiments: settings of `rankscope sweep`, and of `rankscope run`. They run on the CPU."""

"""`rankscope run`: torchrun's command line, and torchrun itself."""

"""The folder that the launcher puts on PYTHONPATH; Python imports ``sitecustomize`` from it at start-up."""

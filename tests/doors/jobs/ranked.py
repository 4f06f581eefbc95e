"""A rank whose launcher set its rank in the environment."""

import os

from common import arguments, join, train

NAMES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
rank, world = next((int(os.environ[a]), int(os.environ[b])) for a, b in NAMES if a in os.environ)
join(rank, **({} if "RANK" in os.environ else arguments(rank, world)))
train(rank)

#!/usr/bin/env bash
# One process a rank under mpirun. On several hosts run.dir is on a file system that all of them share.
#   HOSTS="node-a:8,node-b:8" RUN_DIR=/shared/runs/first launch/mpirun.sh python train.py --lr 1e-4
# The script reads OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE, as without rankscope.
set -euo pipefail
: "${HOSTS:?name the hosts with their number of ranks, as mpirun --host takes them}"
: "${RUN_DIR:?name a new folder that all hosts see}"

# MPIRUN_FLAGS: what your cluster needs besides, for instance --bind-to none.
read -r -a flags <<< "${MPIRUN_FLAGS:-}"
exec mpirun --host "$HOSTS" "${flags[@]}" rankscope exec -S run.dir="$RUN_DIR" "$@"

#!/usr/bin/env bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=01:00:00
# One task a rank: sbatch launch/slurm_tasks.sh python train.py --lr 1e-4
# The script reads SLURM_PROCID and SLURM_NTASKS, as without rankscope.
set -euo pipefail

# A requeued job keeps its id; its runs are told apart by the restart count.
run_id="${SLURM_JOB_ID}_${SLURM_RESTART_COUNT:-0}"

# Slurm ends what is left of a step with its tasks: one of each node stays until its traces are placed, so long at most.
srun --kill-on-bad-exit=1 rankscope exec \
  -S run.dir="$SLURM_SUBMIT_DIR/rankscope_runs/slurm_$run_id" \
  -S gather.exit_grace_s=60 \
  "$@"

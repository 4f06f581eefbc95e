#!/usr/bin/env bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=01:00:00
# sbatch launch/slurm.sh train.py --lr 1e-4
set -euo pipefail

read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# A requeued job keeps its id; its runs are told apart by the restart count.
run_id="${SLURM_JOB_ID}_${SLURM_RESTART_COUNT:-0}"

# One task a node: rankscope run starts the ranks of its node, as torchrun does.
srun --kill-on-bad-exit=1 rankscope run \
  --nnodes="$SLURM_NNODES" \
  --nproc-per-node="${SLURM_GPUS_ON_NODE:-gpu}" \
  --rdzv-backend=c10d \
  --rdzv-endpoint="$head:$((20000 + SLURM_JOB_ID % 10000))" \
  --rdzv-id="$run_id" \
  -S run.dir="$SLURM_SUBMIT_DIR/rankscope_runs/slurm_$run_id" \
  "$@"

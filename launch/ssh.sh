#!/usr/bin/env bash
# One `rankscope run` per host over ssh. The working folder and run.dir are on a file system that all hosts share.
#   HOSTS="node-a node-b" RUN_ID=first RUN_DIR=/shared/runs/first launch/ssh.sh train.py --lr 1e-4
set -euo pipefail
: "${HOSTS:?name the hosts, the first one hosts the rendezvous}"
: "${RUN_ID:?name the run}"
: "${RUN_DIR:?name a new folder that all hosts see}"

read -r -a hosts <<< "$HOSTS"
pids=()
for rank in "${!hosts[@]}"; do
  command=(
    rankscope run
    --nnodes="${#hosts[@]}"
    --node-rank="$rank"
    --nproc-per-node="${NPROC_PER_NODE:-gpu}"
    --master-addr="${hosts[0]}"
    --master-port="${MASTER_PORT:-29500}"
    --rdzv-id="$RUN_ID"
    -S run.dir="$RUN_DIR"
    "$@"
  )
  # %q: the words pass through a second shell on the other side. -tt: the job ends when this script does.
  ssh -tt "${hosts[$rank]}" "cd $(printf '%q' "$PWD") && $(printf '%q ' "${command[@]}")" < /dev/null &
  pids+=($!)
done

code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit "$code"

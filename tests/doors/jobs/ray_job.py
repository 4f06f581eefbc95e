"""Ray Train: the ranks are workers of Ray, and train in a thread."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from common import OUT

ARGV = list(sys.argv)


def rank_of() -> None:
    import sys

    sys.argv[:] = ARGV
    sys.path.insert(0, str(Path(ARGV[0]).resolve().parent))
    import common
    from ray import train

    common.train(train.get_context().get_world_rank())


def start(tries: int) -> None:
    """Ray's node agent has to answer within 15 s, which nothing changes, and which takes longer on a busy machine."""
    try:
        ray.init(num_cpus=4, include_dashboard=False)  # of which it wants one for the trainer itself
    except Exception:
        ray.shutdown()
        if tries == 1:
            raise
        start(tries - 1)


if __name__ == "__main__":
    # workers that have not imported torch within a minute would be given up, and started again, for ever
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "600"
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    start(tries=8)
    TorchTrainer(
        rank_of, scaling_config=ScalingConfig(num_workers=2), torch_config=TorchConfig(backend="gloo"),
        run_config=RunConfig(storage_path=f"{OUT}.ray"),
    ).fit()  # fmt: skip

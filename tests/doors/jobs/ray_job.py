"""Ray Train: the ranks are workers of Ray's, and train in a thread of theirs."""

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


if __name__ == "__main__":
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ray.init(num_cpus=4, include_dashboard=False)  # of which it wants one for the trainer itself
    TorchTrainer(
        rank_of, scaling_config=ScalingConfig(num_workers=2), torch_config=TorchConfig(backend="gloo"),
        run_config=RunConfig(storage_path=f"{OUT}.ray"),
    ).fit()  # fmt: skip

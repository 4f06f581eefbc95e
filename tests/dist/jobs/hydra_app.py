"""A script with its own @hydra.main, which parses the overrides after the script."""

import hydra


@hydra.main(version_base=None, config_path=None)
def main(config):
    print(f"hydra says {config.lr}", flush=True)


if __name__ == "__main__":
    main()

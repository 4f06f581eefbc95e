"""A script that prints, as JSON, everything it can observe of how it was started. It does not train."""

import json
import multiprocessing
import os
import pickle
import sys

if __name__ == "__main__" or "--light-child" not in sys.argv:
    import torch  # noqa: F401


class Mine:
    pass


def child(queue):
    queue.put([Mine.__module__, "rankscope.agent.session" in sys.modules, os.environ.get("PYTHONPATH")])


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    seen_by_child = queue.get(timeout=60)
    process.join()
    main = sys.modules["__main__"]
    text = json.dumps(
        {
            "argv": sys.argv,
            "name": __name__,
            "file": main.__file__,
            "spec": main.__spec__ and main.__spec__.name,
            "package": main.__package__,
            "path": sys.path,
            "pickled": type(pickle.loads(pickle.dumps(Mine()))).__module__,
            "environment": sorted(k for k in os.environ if "RANKSCOPE" in k or k == "PYTHONPATH"),
            "child": seen_by_child,
        }
    )
    print(f"mirror {text}", flush=True)

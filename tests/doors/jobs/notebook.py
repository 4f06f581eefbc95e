"""Two notebook kernels; each creates a process group, attaches itself, trains as a rank, and continues."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

CELLS = (
    f"""
import sys
import torch.distributed as dist
sys.argv = {[__file__, *sys.argv[1:]]!r}
sys.path.insert(0, {str(Path(__file__).parent)!r})
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{sys.argv[3]}", rank=RANK, world_size=2)
""",
    f"""
import rankscope
if {os.environ.get("ATTACH_TO")!r}:
    window = dict(skip_first=2, wait=1, warmup=1, active=5)
    recording = rankscope.attach({os.environ.get("ATTACH_TO")!r}, window, ["analysis.hta=false"])
""",
    "import common; common.train(RANK)",
    "if 'recording' in globals(): recording.close()",
)


def rank_of(rank: int) -> None:
    cells = [new_code_cell(text) for text in (f"RANK = {rank}", *CELLS)]
    NotebookClient(new_notebook(cells=cells), timeout=None, kernel_name="python3").execute()


if __name__ == "__main__":
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(rank_of, range(2)))

"""Two windows of libkineto's, where the first answer to it comes later than it listens. Prints what came of each try."""

import os
import sys
import threading
import time
from pathlib import Path

from rankscope.node.kineto import answer, listen

folder = Path(sys.argv[1])
ours = listen(folder / "dynolog")


def serve():
    late = True
    while True:
        message, sender = ours.recvfrom(1 << 16)
        reply, asked = answer(message, folder)
        if asked is not None:
            asked.unlink()
            if late:
                time.sleep(0.2)
            late = False
        ours.sendto(reply, sender)


threading.Thread(target=serve, daemon=True).start()
where = {"KINETO_IPC_SOCKET_DIR": str(folder), "KINETO_ONDEMAND_TRACE_DIR": str(folder)}
os.environ.update(where | {"KINETO_USE_DAEMON": "1", "KINETO_DAEMON_INIT_DELAY_S": "0", "KINETO_LOG_LEVEL": "6"})

import torch

from rankscope.agent.detach import Detaching
from rankscope.agent.kineto import KinetoCapture, KinetoLink
from rankscope.agent.leave import skip_destructors
from rankscope.model import CaptureSpec

skip_destructors()
nothing = dict.fromkeys(["record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules"], False)
link = KinetoLink(folder, CaptureSpec(activities=["auto"], **nothing), Detaching())
written = 0
while written < 2:
    link.tend()
    torch.ones(8, 8) @ torch.ones(8, 8)
    if not link.holds_request:
        time.sleep(0.01)
        continue
    capture = KinetoCapture(link)
    try:
        capture.prepare()
    except RuntimeError as error:
        print(f"failed {error}", flush=True)
        continue
    capture.start(written, {})
    torch.ones(8, 8) @ torch.ones(8, 8)
    name = capture.stop(folder / "unused")
    assert link.settle(60)
    print(f"wrote {name}", flush=True)
    written += 1

"""Windows of libkineto's in a process that answers it itself, too late or long before. Prints what came of each try."""

import argparse
import os
import threading
import time
from pathlib import Path

from rankscope.node.kineto_server import answer, listen

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--windows", type=int, default=1)
parser.add_argument("--late", action="store_true", help="give the first answer later than libkineto listens")
parser.add_argument("--hold-s", type=float, default=0.0, help="from the answer to the window")
parser.add_argument("--warm-up-s", type=float, default=0.0, help="idle, between the begin and the first step")
args = parser.parse_args()
folder = args.folder
ours = listen(folder / "dynolog")


def serve():
    late = args.late
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

from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.agent.backends.kineto import KinetoCapture, KinetoLink
from rankscope.agent.process.skip_destructors import skip_destructors
from rankscope.records.spec import CaptureSpec

skip_destructors()
nothing = dict.fromkeys(["record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules"], False)
link = KinetoLink(folder, CaptureSpec(activities=["auto"], **nothing), CuptiTeardown())
written = 0
while written < args.windows:
    link.tend()
    torch.ones(8, 8) @ torch.ones(8, 8)
    if not link.holds_request:
        time.sleep(0.01)
        continue
    time.sleep(args.hold_s)
    capture = KinetoCapture(link)
    try:
        capture.prepare()
    except RuntimeError as error:
        print(f"failed {error}", flush=True)
        continue
    begun = time.process_time()
    time.sleep(args.warm_up_s)
    spent = time.process_time() - begun
    capture.start(written, {})
    torch.ones(8, 8) @ torch.ones(8, 8)
    name = capture.stop(folder / "unused")
    assert link.rest(60)
    print(f"wrote {name} after a warm-up that took {spent:.2f} s of CPU", flush=True)
    written += 1

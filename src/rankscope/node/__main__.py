"""The helper process of a node: ``rankscope.node SPOOL``, started by the launcher and started again if it ends early.

With ``--kept``, where no launcher stays to do that, the process only keeps a helper, which is its child: it starts it
again.

It keeps out of the training's way (lowest priority, first to go when memory runs out) and in a session of its own. The
signals by which schedulers and terminals end a job end the job and not the rescue of its traces.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

from rankscope.node.helper import Helper
from rankscope.node.words import Words
from rankscope.rundir.spool import Spool

OTHER_HELPER = 75
"""Exit code: this node has a helper already."""
_OUTLIVED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGPIPE", "SIGXCPU")


_MOST_STARTS = 16
"""What ends a helper each time would end the next as well. With pauses that grow to a minute, a machine that was short
of memory has a quarter of an hour."""
_LONGEST_PAUSE_S = 60.0


def keep(folder: str) -> int:
    """Be this node's helper, in a child that is followed by another when it is killed or fails."""
    pause_s = 1.0
    for _ in range(_MOST_STARTS):
        child = os.fork()  # this process has one thread, and has opened nothing
        if child == 0:
            return main(folder)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, OTHER_HELPER):
            break
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return 0


def outlive() -> None:
    """Ignore what ends a job."""
    for name in _OUTLIVED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)


def main(folder: str) -> int:
    """Be this node's helper."""
    _write_privately()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("900")
    os.chdir("/")  # keeps no file system from being unmounted
    spool = Spool(Path(folder))
    lock = os.open(spool.helper_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return OTHER_HELPER
    except OSError:
        pass  # a file system without locks: its launcher starts one at a time
    Helper(spool, Words(sys.stdout.fileno()), sys.stdin.fileno()).run()
    return 0


def _write_privately() -> None:
    """Files 0600 and directories 0700; where the umask lets the group write, 0660 and 0770: it shares the work."""
    theirs = os.umask(0o077)
    if not theirs & 0o020:
        os.umask(0o007)


if __name__ == "__main__":
    outlive()
    code = (keep if sys.argv[2:] == ["--kept"] else main)(sys.argv[1])
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)  # a thread may hang in a store that does not answer

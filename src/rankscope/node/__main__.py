"""The helper process of a node: ``rankscope.node SPOOL``, started by the launcher and restarted if it ends early.

With ``--kept``, if no launcher stays to restart it, the process itself restarts the helper, which is its child.

It avoids disturbing the training (lowest priority, first to be killed when memory runs out), and has a session of its
own. The signals by which schedulers and terminals end a job therefore do not end the collection of its traces.
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
from rankscope.node.messages import Messages
from rankscope.rundir.spool import Spool

OTHER_HELPER = 75
"""Exit code: this node has a helper already."""
_OUTLIVED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGPIPE", "SIGXCPU")


_MOST_STARTS = 16
"""If a helper always fails, its successors fail too. With pauses that grow to a minute, these starts cover a quarter of
an hour, in which a machine that was short of memory may recover."""
_LONGEST_PAUSE_S = 60.0


def keep(folder: str) -> int:
    """Run this node's helper in a child process, which is restarted when it is killed or fails."""
    pause_s = 1.0
    for _ in range(_MOST_STARTS):
        child = os.fork()  # this process has one thread, and has opened no files
        if child == 0:
            return main(folder)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, OTHER_HELPER):
            break
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return 0


def outlive() -> None:
    """Ignore the signals that end a job."""
    for name in _OUTLIVED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)


def main(folder: str) -> int:
    """Run this node's helper."""
    _write_privately()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("900")
    os.chdir("/")  # so that no file system is kept from being unmounted
    spool = Spool(Path(folder))
    lock = os.open(spool.helper_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return OTHER_HELPER
    except OSError:
        pass  # a file system without locks: its launcher starts one helper at a time
    Helper(spool, Messages(sys.stdout.fileno()), sys.stdin.fileno()).run()
    return 0


def _write_privately() -> None:
    """Create files with 0600 and directories with 0700; if the umask grants the group write access, with 0660 and 0770,
    because the group then shares the runs."""
    theirs = os.umask(0o077)
    if not theirs & 0o020:
        os.umask(0o007)


if __name__ == "__main__":
    outlive()
    code = (keep if sys.argv[2:] == ["--kept"] else main)(sys.argv[1])
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)  # a thread may hang in a store that does not answer

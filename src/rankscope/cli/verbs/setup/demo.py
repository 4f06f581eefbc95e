"""``rankscope demo``."""

from __future__ import annotations

import argparse
import os

from rankscope.cli.parts.arguments import Verbs
from rankscope.cli.verbs.jobs.run import run
from rankscope.errors import ConfigError

__all__ = ["add_demo", "demo_verb"]


def add_demo(verbs: Verbs) -> None:
    """Add the verb."""
    from rankscope.demo.faults import FAULTS

    demo = verbs.add_parser(
        "demo",
        help="train a small transformer with a fault planted, and find it",
        epilog="faults:\n" + "\n".join(f"  {name:15} {fault.line()}" for name, fault in FAULTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("--fault", choices=FAULTS, metavar="NAME", default="input_stall", help="default: input_stall")
    demo.add_argument("--ranks", type=int, default=2, help="processes, all on this machine (default: 2)")
    demo.add_argument("--bad-rank", type=int, metavar="RANK", help="the rank with the fault (default: the last)")
    demo.add_argument("--size", type=float, help="of the fault (default: as below)")
    demo.add_argument("--steps", type=int, help="training steps (default: enough to show the fault)")
    demo.add_argument("--then-fix", action="store_true", help="run it again without the fault, and compare the two")
    demo.add_argument("-S", "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[])
    demo.set_defaults(verb=demo_verb)


def demo_verb(arguments: argparse.Namespace) -> int:
    """Train the demo job with a fault planted."""
    from rankscope.demo import JOBS
    from rankscope.demo.faults import FAULTS
    from rankscope.demo.loopback import loopback_rendezvous

    fault, ranks = FAULTS[arguments.fault], arguments.ranks
    bad = ranks - 1 if arguments.bad_rank is None else arguments.bad_rank
    if not 1 <= ranks <= 64:
        raise ConfigError(f"--ranks {ranks} is out of 1 to 64; 2 are enough to see a slow one")
    if not 0 <= bad < ranks:
        raise ConfigError(f"--bad-rank {bad} is none of the {ranks} ranks, 0 to {ranks - 1}")
    lacking = fault.lacking(ranks)
    if lacking is not None:
        raise ConfigError(f"--fault {arguments.fault} needs {lacking}")
    if arguments.then_fix:
        from rankscope.cli.parts.then_fix import MEASURED, then_fix

        return then_fix(arguments, tuple(fault.settings), arguments.steps or fault.steps + MEASURED)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the value that torchrun would set, with a warning
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # otherwise Kineto logs each start and stop
    job = ["--fault", arguments.fault, "--bad-rank", bad, "--steps", arguments.steps or fault.steps]
    if arguments.size is not None:
        job += ["--size", arguments.size]
    settings = [word for setting in (*fault.settings, *arguments.overrides) for word in ("-S", setting)]
    with loopback_rendezvous() as rendezvous:
        words = [*rendezvous, "--nproc-per-node", ranks, *settings, JOBS / fault.script, *job]
        return run([str(word) for word in words])

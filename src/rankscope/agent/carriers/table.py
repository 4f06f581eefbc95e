"""All carriers. To add one: a file beside the others, and a line here.

Other packages add carriers through the entry points ``rankscope.carriers`` (see :mod:`rankscope.plugins`), which are
loaded only in jobs on several nodes.
"""

from __future__ import annotations

from rankscope import plugins
from rankscope.agent.carriers import job_store, node_spool, run_directory, torchrun_store
from rankscope.agent.carriers.base import Carrier, Post
from rankscope.agent.process.guard import keep_message

__all__ = ["OURS", "carrier_for", "choose_carrier"]

OURS: tuple[Carrier, ...] = (
    node_spool.CARRIER,
    torchrun_store.CARRIER,
    job_store.CARRIER,
    run_directory.CARRIER,
)
"""In order of preference: the first that is possible is used."""


def choose_carrier(post: Post, *, several_nodes: bool, carries: bool) -> Carrier:
    """Choose the carrier of this job, and start it if this process carries for its node. Raises nothing.

    Args:
        post: what to carry.
        several_nodes: whether there are, or may be, ranks on other nodes.
        carries: whether this process carries for its node.
    """
    if not several_nodes:
        return node_spool.CARRIER
    theirs = plugins.load("carriers", Carrier, frozenset(carrier.name for carrier in OURS), "name")
    carrier = carrier_for(post, (*theirs, *OURS))
    if carries:
        try:
            carrier.start(post)
        except Exception as error:  # without announcements each rank opens windows as planned
            keep_message(f"nodes do not hear of each other's windows: {error}")
    return carrier


def carrier_for(post: Post, carriers: tuple[Carrier, ...] = OURS) -> Carrier:
    """Return the first carrier that is possible; the node's spool if none is."""
    return next((carrier for carrier in carriers if _possible(carrier, post)), node_spool.CARRIER)


def _possible(carrier: Carrier, post: Post) -> bool:
    try:
        return carrier.possible(post)
    except Exception as error:
        keep_message(f"announcements cannot travel {carrier.phrase}: {error}")
        return False

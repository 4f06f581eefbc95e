"""A rendezvous that listens on the loopback interface only, whereas torchrun's own store listens on every interface."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from torch.distributed import TCPStore  # type: ignore[attr-defined]

__all__ = ["loopback_rendezvous"]


@contextlib.contextmanager
def loopback_rendezvous() -> Iterator[list[str]]:
    """Serve a store on 127.0.0.1 and yield the torchrun flags that select it.

    torchrun's static rendezvous asks for a multi-tenant store on the master port: when this process already serves
    one there, it is shared instead of a new one being opened. gloo is bound to the same interface.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, multi_tenant=True, master_listen_fd=listener.detach())
    names = {name for _, name in socket.if_nameindex()}
    saved = os.environ.get("GLOO_SOCKET_IFNAME")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if "lo" in names else "lo0"
    try:
        yield ["--rdzv-backend=static", "--master-addr=127.0.0.1", f"--master-port={port}", "--local-addr=127.0.0.1"]
    finally:
        if saved is None:
            del os.environ["GLOO_SOCKET_IFNAME"]
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = saved
        del store

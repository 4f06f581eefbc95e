"""A page that passes the timeline to the Perfetto UI in another tab, if that UI may not fetch it itself.

The UI's content security policy allows connections to one local port only. From any other port the file is passed in
the way that the UI documents: our page opens it, sends a message until it answers, and posts the bytes.
"""

from __future__ import annotations

import base64
import hashlib

__all__ = ["hand_over"]

_SCRIPT = """
const button = document.querySelector('button'), said = document.querySelector('p');
button.onclick = () => {
  const origin = button.value, ui = window.open(origin);
  if (!ui) { said.textContent = 'The browser did not let this page open a tab.'; return; }
  const data = fetch(button.name).then(answer => answer.arrayBuffer());
  const asking = setInterval(() => ui.postMessage('PING', origin), 100);
  const heard = async event => {
    if (event.source !== ui || event.origin !== origin || event.data !== 'PONG') return;
    clearInterval(asking);
    removeEventListener('message', heard);
    ui.postMessage({perfetto: {buffer: await data, title: 'rankscope', fileName: button.name}}, origin);
    said.textContent = 'The timeline is in the other tab.';
  };
  addEventListener('message', heard);
};
"""


def hand_over(name: str, viewer: str) -> str:
    """Return the page.

    Args:
        name: of the timeline, beside the page. Always a name of rankscope, never the user's.
        viewer: origin of the Perfetto UI.
    """
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        '<meta http-equiv="Content-Security-Policy" '
        f"content=\"default-src 'none'; script-src 'sha256-{digest}'; connect-src 'self'\">"
        "<title>Merged timeline - rankscope</title></head><body><h1>Merged timeline of all ranks</h1>"
        f'<button name="{name}" value="{viewer}">Open in the Perfetto UI</button>'
        "<p>It is read in your browser and not uploaded.</p>"
        f"<script>{_SCRIPT}</script></body></html>"
    )

"""The documentation site builds without a warning, and its pages make no request to other sites."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADS = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(https?:)?//|<link\b[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*https?://"
)


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="needs mkdocs-material (rankscope[docs])")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert {"index.html", "cli.html", "metrics.html"} <= {page.name for page in pages}
    for page in pages:
        assert not LOADS.search(page.read_text(encoding="utf-8")), page

"""Open the browser at a URL that holds a secret, without the secret in a command line, which every user can read.

The browser opens a page in a private folder, which leads it to the URL.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import webbrowser
from html import escape
from pathlib import Path

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>messager</title>
<p><a href="{url}">Open the experiment</a></p>
</html>
"""


class RedirectFile:
    """A page that leads to a URL: a file that only this user can read, in a folder that only this user can open."""

    def __init__(self) -> None:
        self._folder: str | None = None

    def open(self, url: str) -> None:
        """Make the file, and open it in the user's browser."""
        self._folder = tempfile.mkdtemp(prefix="messager-view-")
        path = Path(self._folder, "open.html")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(_PAGE.format(url=escape(url)))
        # in a thread: some browsers return only when they are closed
        threading.Thread(target=webbrowser.open, args=(path.as_uri(),), name="browser", daemon=True).start()

    def remove(self) -> None:
        """Delete the file and its folder, if they are there."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def has_browser() -> bool:
    """Return whether there may be a browser with windows: one in the terminal would take the terminal."""
    if sys.platform != "linux":
        return True
    return any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")))

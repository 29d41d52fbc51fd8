"""Start of a program that `messager run` records: Python imports `sitecustomize` of this folder before the program.

The folder is on PYTHONPATH, so that spawned and forked processes and local Ray workers are reached too. Interpreters
that ignore PYTHONPATH import this package through a `.pth` file instead, if `messager hook install` has made one.
"""

from __future__ import annotations

import os
import sys

from ..variables import COMPAT, RUN

_begun = False


def begin() -> None:
    """Install the adapters of a process that belongs to a run. Never raises."""
    global _begun
    if _begun or not os.environ.get(RUN):
        return
    _begun = True
    try:
        from ..compat.loading import ADAPTERS, watch

        named = os.environ.get(COMPAT)
        watch(ADAPTERS if named is None else [name for name in named.split(",") if name in ADAPTERS])
    except Exception as error:
        print(f"messager: the adapters cannot be installed: {error!r}", file=sys.stderr)

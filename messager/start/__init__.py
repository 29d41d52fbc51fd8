"""Start of a program that `messager run` records: Python imports `sitecustomize` of this folder before the program.

The folder is on PYTHONPATH, so that spawned and forked processes and local Ray workers are reached too. Interpreters
that ignore PYTHONPATH import this package through a `.pth` file instead, if `messager hook install` has made one.
"""

from __future__ import annotations

import os
import sys

from ..variables import CALLS, COMPAT, RUN, SEED

_begun = False
seed_of_run: str | None = None
"""Number with which the random generators of this process were seeded; None if they were not."""


def begin() -> None:
    """Install the adapters, and the hooks of calls, of a process that belongs to a run. Never raises."""
    global _begun
    if _begun or not os.environ.get(RUN):
        return
    _begun = True
    for step in (_begin_calls, _seed, _watch):
        try:
            step()
        except Exception as error:
            print(f"messager: this process is not recorded completely: {error!r}", file=sys.stderr)


def _begin_calls() -> None:
    if os.environ.get(CALLS):
        from ..calls.starting import start

        start()


def _watch() -> None:
    from ..compat.loading import ADAPTERS, watch

    named = os.environ.get(COMPAT)
    watch(ADAPTERS if named is None else [name for name in named.split(",") if name in ADAPTERS])


def _seed() -> None:
    """Seed the random generators of a program as the run says; processes that it starts seed themselves."""
    seed = os.environ.pop(SEED, None)
    if seed is None:
        return
    global seed_of_run
    seed_of_run = seed
    import random

    from ..on_import import on_import

    random.seed(int(seed))
    on_import(["numpy.random"], lambda: sys.modules["numpy.random"].seed(int(seed) % 2**32))

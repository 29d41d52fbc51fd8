"""Time and memory of `messager delays` and `messager problems`.

    python -m bench.auditing [--pairs N] [--store FILE or URL]

A million sendings of 1,000 agents in 20 recorders, each with one reception. Figures of one run, for
docs/performance.md. An existing store is measured as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time

from messager_store import EventLog
from messager_store.errors import ExperimentNotFound

from .indexing import EXP_ID, RECORDERS, measured, record, show

LINES = (
    ("delays", EXP_ID),
    ("delays", EXP_ID, "--by", "channel"),
    ("delays", EXP_ID, "--replies"),
    ("problems", EXP_ID),
)


async def made(store: str, pairs: int) -> None:
    """Record the experiment, unless the store has it."""
    async with EventLog.open(store) as log:
        try:
            await log.experiment(EXP_ID)
        except ExperimentNotFound:
            of = await log.create_experiment(EXP_ID)
            writers = [await log.register(of, role="messager") for _ in range(RECORDERS)]
            await record(log, writers, 0, pairs)
            for writer in writers:
                await log.touch(writer, ended_at=time.time_ns())


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.auditing", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--store", help="file or URL of a store (default: a temporary file)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or f"{folder}/log.db"
        asyncio.run(made(store, options.pairs))
        for words in (("index", EXP_ID), *LINES):
            seconds, peak, _ = measured(store, *words)
            show(f"messager {' '.join(words)}", f"{seconds:.2f} s, peak {peak} MB")


if __name__ == "__main__":
    main()

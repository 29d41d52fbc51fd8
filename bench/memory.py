"""Rows about peak memory: of a process that records, replays or exports many events, and few.

python -m bench.memory record STORE COUNT
python -m bench.memory replay STORE URL
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from messager import MessageRecord, RedisBroker
from messager_store import EventLog, Recorder, Replay, ReplayReport

from . import stores
from .measure import Stage, Values, progress_printer
from .workload import BEGIN, STEP, WIRE, channel, remove

CHUNK = 1000
"""Records added before waiting for capacity in the recorder."""
MAX_WAITING = 5000
"""Maximum events in the recorder's memory after that wait."""

# The peak of a process includes the memory that it inherits by fork, so a small process forks it.
_LAUNCHER = """
import os, sys
out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
process = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(process, 0)
os.write(out, str(usage.ru_maxrss).encode())
sys.exit(os.waitstatus_to_exitcode(status))
"""


def _peak(*arguments: str) -> Values:
    """Run Python with these arguments; return the peak (MB) and the duration (s)."""
    command = [sys.executable, "-S", "-E", "-c", _LAUNCHER, sys.executable, *arguments]
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise RuntimeError(f"the process ended with exit code {done.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return {"peak": int(done.stdout) * unit / 1e6, "seconds": time.perf_counter() - began}


class Record:
    """Peak (MB) of a process that records events as fast as the recorder has capacity."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        stores.check_space(stage.folder, stage.events)

    def ours(self) -> Values:
        return self._run(self._stage.events)

    def theirs(self) -> Values:
        return self._run(stores.SMALL)

    def _run(self, count: int) -> Values:
        path = self._stage.new_path()
        try:
            return _peak("-m", "bench.memory", "record", str(path), str(count))
        finally:
            remove(path)


class _OnStores:
    """One process on the large store, and one on the small store."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._large, self._small = stores.large(stage), stores.small(stage)

    def ours(self) -> Values:
        return self.run(self._large)

    def theirs(self) -> Values:
        return self.run(self._small)

    def run(self, path: Path) -> Values:
        """Run the process on this store."""
        raise NotImplementedError


class ReplayMemory(_OnStores):
    """Peak (MB) of a process that replays at full speed to a Redis without subscribers."""

    def run(self, path: Path) -> Values:
        return _peak("-m", "bench.memory", "replay", str(path), self._stage.server.url)


class Export(_OnStores):
    """Peak (MB) of `messager export` whose output is discarded."""

    def run(self, path: Path) -> Values:
        main = "from messager_store.cli import main; main()"
        return _peak("-c", main, "export", stores.EXP_ID, "-o", "-", "--store", str(path))


async def _record(path: str, count: int) -> None:
    say, told = progress_printer(), time.monotonic()
    channels = [channel(number) for number in range(stores.NAMES)]
    async with EventLog.open(path) as log, Recorder(log, stores.EXP_ID) as recorder:
        for first in range(0, count, CHUNK):
            for at in range(first, min(first + CHUNK, count)):
                number = at % stores.NAMES
                recorder.after(MessageRecord("sent", BEGIN + at * STEP, channels[number], WIRE, at * 7 % 1000, number))
            await recorder.wait_for_capacity(MAX_WAITING)
            await asyncio.sleep(0)
            if time.monotonic() - told > 5:
                told = time.monotonic()
                say(f"memory-record: {first:,} of {count:,} events")
        await recorder.flush()
        if recorder.accepted != count or recorder.dropped:
            raise SystemExit(f"{recorder.accepted} of {count} events were recorded")


async def _replay(path: str, url: str) -> None:
    say, told = progress_printer(), time.monotonic()

    def tell(report: ReplayReport) -> None:
        nonlocal told
        if time.monotonic() - told > 5:
            told = time.monotonic()
            say(f"memory-replay: {report.published:,} of {report.planned:,} messages")

    broker = RedisBroker.from_url(url)
    async with EventLog.open(path, create=False) as log:
        await Replay(log, stores.EXP_ID, broker, speed="max", progress=tell).run()
    await broker.close()


if __name__ == "__main__":
    verb, store, what = sys.argv[1:]
    asyncio.run(_record(store, int(what)) if verb == "record" else _replay(store, what))

"""Program of a replay that `messager view` starts: it reads its work from standard input, and ends when that is closed.

So the replay ends with the server, also if that is killed, and no URL with a password is on a command line. The replay
begins paused and is controlled through its socket. What it did is printed in lines for people.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

from messager.brokers import open_broker
from messager.errors import MessagerError

from ...errors import StoreError
from ...lockstep.live_replay import LiveReplay, LiveReplayReport
from ...log.event_log import EventLog
from ...replay import ControlSocket, Replay, ReplayReport, ReplayState
from ...text import plural


async def replay(work: dict[str, Any]) -> int:
    """Do the work: `store`, `exp_id`, `broker`, `to_exp`, `live`, and the path of the `socket`. Return an exit code."""
    async with EventLog.open(work["store"], create=False) as log:
        broker = open_broker(work["broker"])
        try:
            made = Replay if work["live"] is None else partial(LiveReplay, live=work["live"])
            replay = made(log, work["exp_id"], broker, to_exp=work["to_exp"])
            replay.control.pause()
            running = asyncio.create_task(replay.run())
            _cancel_at_end_of_input(running)
            ended = False
            try:
                async with ControlSocket(replay.control, work["socket"]):
                    with contextlib.suppress(asyncio.CancelledError):
                        await running
                ended = True
            finally:
                for line in result(replay.report) if ended or replay.report.published else ():
                    print(line)
        finally:
            await broker.close()
    report = replay.report
    differs = isinstance(report, LiveReplayReport) and not report.equal
    return 1 if differs or report.failed else 0


def _cancel_at_end_of_input(running: asyncio.Task[Any]) -> None:
    loop = asyncio.get_running_loop()

    def wait() -> None:
        os.read(0, 1)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(running.cancel)

    threading.Thread(target=wait, name="end of input", daemon=True).start()


def result(report: ReplayReport) -> Iterator[str]:
    """Yield what a replay did, in lines."""
    ended = "" if report.state is ReplayState.FINISHED else ", ended before the last message"
    yield f"published {plural(report.published, 'message')} in {report.duration_s:.1f} s{ended}"
    if report.published and report.no_subscriber == report.published:
        yield "nobody was listening"
    for one in report.failures:
        count = plural(one.messages, "message")
        yield f"{one.outcome}: {one.channel} ({count} from {one.first} on): {one.reason}"
    if isinstance(report, LiveReplayReport):
        names = ("matched", "different", "missing", "late", "early", "unexpected")
        counts = [f"{number:,} {name}" for name in names if (number := report.total(name))]
        verdict = "equal" if report.equal else "different"
        yield f"live agents {verdict}: {report.total('expected'):,} expected, {', '.join(counts) or 'none said'}"
        yield from report.notes


def main() -> None:
    """Read the work, do it, and exit with its code."""
    work = json.loads(sys.stdin.buffer.readline())
    try:
        code = asyncio.run(replay(work))
    except (StoreError, MessagerError, ValueError) as error:
        print(error)
        code = 3 if isinstance(error, MessagerError) else getattr(error, "exit_code", 2)
    sys.exit(code)


if __name__ == "__main__":
    main()

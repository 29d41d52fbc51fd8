"""Columns of the events of the log: of many, made in a process of its own, beside the one that decides about them."""

from __future__ import annotations

import asyncio
import marshal
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from ..child_process import ChildProcess
from ..errors import StoreError
from . import schema

MANY = 100_000
"""Events from which a process of its own is worth its start."""
MOST_BYTES = 32 * 1024 * 1024
"""Bytes of payloads that are sent to it together."""
_PROGRAM = Path(__file__).with_name("columns_program.py")


class Columns:
    """Makes columns as `schema.read` does. The end of the `with` block ends the process."""

    def __init__(self, names: schema.Names, events: int) -> None:
        """Start the process if there are many `events`. Without one, because it cannot be, this process does it all."""
        self._names = names
        self._process: ChildProcess | None = None
        self._ending = ExitStack()
        if events >= MANY:
            try:
                self._process = self._ending.enter_context(ChildProcess(_PROGRAM, "-P"))
            except StoreError:
                return
            self._process.call(self._begin)

    def __enter__(self) -> Columns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def read(self, rows: Sequence[tuple[Any, ...]], labels: Sequence[str | None], size: int) -> Any:
        """Return what `schema.read` returns, or a future of it. `size` is the number of bytes of payloads."""
        process = self._process
        if process is None or size > MOST_BYTES:
            return schema.read(rows, labels, self._names)
        return process.call(lambda: self._read(rows, labels))

    def _begin(self) -> None:
        try:
            if self._ask((dict(self._names.ordinals), dict(self._names.by_uuid))) != os.fsencode(schema.__file__):
                self._process = None
        except (OSError, EOFError):
            self._process = None

    def _read(self, rows: Sequence[tuple[Any, ...]], labels: Sequence[str | None]) -> Any:
        try:
            if self._process is not None:
                return schema.pyarrow().ipc.open_stream(self._ask(([*map(tuple, rows)], labels))).read_all()
        except (OSError, EOFError):  # it was killed, or what it read is damaged
            self._process = None
        return schema.read(rows, labels, self._names)

    def _ask(self, request: Any) -> bytes:
        process = self._process
        assert process is not None
        data = marshal.dumps(request)
        process.stdin.write(len(data).to_bytes(8, "big"))
        process.stdin.write(data)
        process.stdin.flush()
        size = process.stdout.read(8)
        answer = process.stdout.read(int.from_bytes(size, "big"))
        if len(size) < 8 or len(answer) < int.from_bytes(size, "big"):
            raise EOFError
        return answer


async def made(pages: list[Any]) -> list[Any]:
    """Return what `Columns.read` returned, without futures."""
    return [await page if isinstance(page, asyncio.Future) else page for page in pages]

"""Errors of an adapter, which do not stop the framework."""

from __future__ import annotations

import logging
from types import TracebackType

log = logging.getLogger("messager")


class Quietly:
    """Context in which an adapter notes something: an error is logged, the first time only, and not raised."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._failed = False

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if not self._failed:
            self._failed = True
            text = "a message of %s was not recorded; later errors like this are not logged"
            log.error(text, self._framework, exc_info=error)
        return True

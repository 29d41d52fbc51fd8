"""Brokers that go to another process, as to a Ray actor: by the URL that they were made from."""

from __future__ import annotations

from typing import Any


class Travelling:
    """A broker with a `from_url` that sets `_made_from`. It is pickled as that: the URL, password included."""

    _made_from: tuple[str, dict[str, Any]] | None = None
    """The URL, and the options besides; None where it was made in another way."""

    @property
    def travels(self) -> bool:
        """Whether it goes to another process: it was made from a URL, and is not connected."""
        return self._made_from is not None and not self._in_use()

    def _in_use(self) -> bool:
        raise NotImplementedError

    def __reduce__(self) -> Any:
        if not self.travels:
            raise TypeError(
                f"a {type(self).__name__} goes to another process before it is connected, and made from a URL, as "
                "`open_broker(url)` of messager.brokers makes it: connect it where it is used"
            )
        return _made, (type(self), self._made_from)


def _made(kind: Any, made_from: tuple[str, dict[str, Any]]) -> Any:
    url, options = made_from
    return kind.from_url(url, **options)

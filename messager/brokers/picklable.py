"""Brokers that can be pickled, for another process such as a Ray actor: as the URL that they were made from."""

from __future__ import annotations

from typing import Any


class PicklableBroker:
    """Broker with a `from_url` that sets `_made_from`. It is pickled as that: the URL, password included."""

    _made_from: tuple[str, dict[str, Any]] | None = None
    """URL and options of `from_url`; None if the broker was made in another way."""

    @property
    def picklable(self) -> bool:
        """True if the broker was made from a URL and is not connected."""
        return self._made_from is not None and not self._in_use()

    def _in_use(self) -> bool:
        raise NotImplementedError

    def __reduce__(self) -> Any:
        if not self.picklable:
            raise TypeError(
                f"a {type(self).__name__} can be pickled only before it is connected, and only if it was made from a "
                "URL. Make it with `open_broker(url)` of messager, and connect it in the process that uses it."
            )
        return _made, (type(self), self._made_from)


def _made(kind: Any, made_from: tuple[str, dict[str, Any]]) -> Any:
    url, options = made_from
    return kind.from_url(url, **options)

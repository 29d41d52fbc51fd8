"""Where a replayed message goes: channels renamed, moved to another experiment, and to another kind of broker.

What a log has is what was on the wire. Names are translated (see `messager.channels`) only where a replay, a
comparison or the pattern of a tap goes from one kind of broker to the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from messager import channels
from messager.brokers import kind_of

from ..errors import StoreError


class ChannelMap:
    """A map from recorded channels to the channels on which they are published.

    `mapping` holds OLD=NEW pairs, the first that fits counts: an exact name, or a prefix
    where both end with `*` (`a:*` to `b:*`). What no pair fits keeps its name, except that
    `to_exp` replaces the experiment in `exps:{exp_id}:...`, and `rename` is asked after that (see
    `between`). Raises `StoreError` for pairs that cannot be meant.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None, to_exp: str | None = None) -> None:
        self._pairs = list((mapping or {}).items())
        for old, new in self._pairs:
            if not new or (old.endswith("*") != new.endswith("*") and "*" in (old[-1:], new[-1:])):
                raise StoreError(f"cannot map {old!r} to {new!r}: give two names, or two prefixes that both end with *")
        if to_exp is not None and not re.fullmatch(r"(?!@)[^:/*?\[\]\s]+", to_exp):
            raise StoreError(
                f"{to_exp!r} cannot be the experiment in a channel: no spaces, none of : / * ? [ ], no @ in front"
            )
        self.rename: Callable[[str], str] | None = None
        """What becomes of a name that no pair fits. Set before the first is mapped."""
        self._to_exp = to_exp
        self._known: dict[str, bytes] = {}

    def __call__(self, channel: str) -> bytes:
        """Return the channel to publish on, in bytes."""
        try:
            return self._known[channel]
        except KeyError:
            if len(self._known) >= 100_000:
                self._known.clear()
            wire = self._known[channel] = channels.encode(self._mapped(channel))
            return wire

    def pair_for(self, channel: str) -> tuple[str, str] | None:
        """Return the pair of `mapping` that renames a channel; None where no pair fits."""
        for old, new in self._pairs:
            if old == channel or (old.endswith("*") and new.endswith("*") and channel.startswith(old[:-1])):
                return old, new
        return None

    def unfitted(self, channels_: Iterable[str]) -> list[str]:
        """Return the left sides that match none of these channels."""
        fitted = set(map(self.pair_for, channels_))
        return [pair[0] for pair in self._pairs if pair not in fitted]

    def _mapped(self, channel: str) -> str:
        if (pair := self.pair_for(channel)) is not None:
            old, new = pair
            return new if old == channel else new[:-1] + channel[len(old) - 1 :]
        if self._to_exp is not None:
            channel = channels.with_experiment(channel, self._to_exp)
        return channel if self.rename is None else self.rename(channel)


def between(recorded: Iterable[str | None], target: str) -> Callable[[str], str] | None:
    """How names change on the way from the brokers that were recorded to another; None where they stay.

    From Redis to MQTT `exps:...` becomes `exps/...`, and the other way round. Where it is not known
    what was recorded, as of an import, the names themselves tell: those that the target would have stay.
    """
    wanted = kind_of(target).separator
    if _separators(recorded) == {wanted}:
        return None
    return partial(channels.with_separator, wanted=wanted)


def spelling(recorded: Iterable[str | None], names: Iterable[str]) -> channels.Separator | None:
    """Return the separator of an experiment's channels; None if it has both or neither.

    Where it is not known what was recorded, as of an import, the names themselves tell.
    """
    found = _separators(recorded) or {known for name in names if (known := channels.separator(name)) is not None}
    return found.pop() if len(found) == 1 else None


def _separators(recorded: Iterable[str | None]) -> set[channels.Separator]:
    return {kind_of(url).separator for url in recorded if url}

"""Channels of a replay: renamed, moved to another experiment, translated to another kind of broker.

The log keeps the names that were on the wire. A replay, a comparison or the pattern of a tap translates names (see
`messager.channels`) only from one kind of broker to another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from messager import channels
from messager.brokers import BrokerKind

from ..errors import StoreError


class ChannelMap:
    """A map from recorded channels to the channels on which they are published.

    `mapping` maps exact names, or prefixes if both sides end with `*` (`a:*` to `b:*`). The first pair that matches
    applies. If none matches, `to_exp` replaces the experiment in `exps:{exp_id}:...`, and `rename` (see `between`) is
    applied after that. Raises `StoreError` for an invalid pair.
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
        """Translation of names that no pair matches. Set it before the first channel is mapped."""
        self.to_exp = to_exp
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
        """Return the pair of `mapping` that renames a channel; None if none matches."""
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
        if self.to_exp is not None:
            channel = channels.with_experiment(channel, self.to_exp)
        return channel if self.rename is None else self.rename(channel)


def between(recorded: Iterable[BrokerKind | None], target: BrokerKind) -> Callable[[str], str] | None:
    """Return the translation of names from the recorded kinds of brokers to another kind; None if names stay the same.

    From Redis to MQTT, `exps:...` becomes `exps/...`, and the reverse. If no kind is known, as for some imports, each
    name decides by its own separator.
    """
    wanted = target.separator
    if {kind.separator for kind in recorded if kind is not None} == {wanted}:
        return None
    return partial(channels.with_separator, wanted=wanted)

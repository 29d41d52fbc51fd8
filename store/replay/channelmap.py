"""Where a replayed message goes: channels renamed, and moved to another experiment."""

from __future__ import annotations

from collections.abc import Mapping

from messager import channels


class ChannelMap:
    """Maps a recorded channel to the one it is published on.

    `mapping` holds OLD=NEW pairs, the first that fits counts: an exact name, or a prefix
    where both end with `*` (`a:*` to `b:*`). What no pair fits keeps its name, except that
    `to_exp` replaces the experiment in `exps:{exp_id}:...`.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None, to_exp: str | None = None) -> None:
        self._pairs = list((mapping or {}).items())
        self._to_exp = to_exp
        self._known: dict[str, bytes] = {}

    def __call__(self, channel: str) -> bytes:
        """The channel to publish on, as it is on the wire."""
        try:
            return self._known[channel]
        except KeyError:
            if len(self._known) >= 100_000:
                self._known.clear()
            wire = self._known[channel] = channels.encode(self._mapped(channel))
            return wire

    def _mapped(self, channel: str) -> str:
        for old, new in self._pairs:
            if old == channel:
                return new
            if old.endswith("*") and new.endswith("*") and channel.startswith(old[:-1]):
                return new[:-1] + channel[len(old) - 1 :]
        return channel if self._to_exp is None else channels.with_experiment(channel, self._to_exp)

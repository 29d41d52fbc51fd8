"""The choice of events that represent messages (`log.messages.Sources`), for whole record batches."""

from __future__ import annotations

from typing import Any

from ..db.codes import KINDS, SEQ_BITS
from ..log.messages import Sources
from . import schema

_SENT, _RECEIVED = KINDS.index("sent") + 1, KINDS.index("received") + 1
_ORDINALS = 1 << 31


class MessageRule:
    """Decides about events by `rule`; `channels` are the names of channels by their position."""

    def __init__(self, rule: Sources, channels: list[str]) -> None:
        self._rule = rule
        pa = self._pa = schema.pyarrow()
        self._kinds = pa.array([KINDS.index(kind) + 1 for kind in rule.kinds], pa.int64())
        self._retracted = pa.array([recorder << SEQ_BITS | seq for recorder, seq in rule.retracted], pa.int64())
        if rule.sent is None:
            return
        self._channels = channels
        self._sent = pa.array([channel in rule.sent for channel in channels], pa.bool_())
        heard = [at * _ORDINALS + by for at, name in enumerate(channels) for by in rule.listeners.get(name, ())]
        self._heard = pa.array(heard, pa.int64())
        times = [rule.recorded[name].intervals if name in rule.recorded else [] for name in channels]
        self._begin = pa.array([one[0][0] if len(one) == 1 else None for one in times], pa.int64())
        self._end = pa.array([one[0][1] if len(one) == 1 else None for one in times], pa.int64())
        self._several = pa.array([len(one) > 1 for one in times], pa.bool_())
        self._paired = pa.array([recorder << SEQ_BITS | seq for recorder, seq in rule.paired], pa.int64())

    def takes(self, kind: Any, channel: Any, recorder: Any, seq: Any, ts: Any) -> Any:
        """Return whether each event represents a message. `kind` is its code, `channel` the position of its channel."""
        pa, pc = self._pa, self._pa.compute
        found = pc.is_in(kind, value_set=self._kinds)
        place = pc.bit_wise_or(pc.shift_left(recorder, pa.scalar(SEQ_BITS, pa.int64())), seq)
        if len(self._retracted):
            found = pc.and_(found, pc.invert(pc.is_in(place, value_set=self._retracted)))
        if self._rule.sent is None or not len(self._channels):
            return found
        sent, received = pc.equal(kind, _SENT), pc.equal(kind, _RECEIVED)
        spoken = pc.fill_null(self._sent.take(channel), False)
        key = pc.add(pc.multiply(pc.cast(channel, pa.int64()), pa.scalar(_ORDINALS, pa.int64())), recorder)
        heard = pc.is_in(key, value_set=self._heard)
        during = pc.and_(pc.greater_equal(ts, self._begin.take(channel)), pc.less_equal(ts, self._end.take(channel)))
        late = pc.invert(pc.fill_null(during, False))
        if len(self._paired):
            on_spoken = pc.fill_null(pc.or_(self._begin.is_valid(), self._several).take(channel), False)
            late = pc.and_(late, pc.invert(pc.and_(on_spoken, pc.is_in(place, value_set=self._paired))))
        heard = pc.and_(heard, late)
        several = pc.and_(pc.and_(received, heard), pc.fill_null(self._several.take(channel), False))
        if pc.any(several).as_py():
            heard = self._without_recorded(heard, several, channel, ts)
        other = pc.invert(pc.or_(sent, received))
        return pc.and_(found, pc.or_(other, pc.or_(pc.and_(sent, spoken), pc.and_(received, heard))))

    def _without_recorded(self, heard: Any, several: Any, channel: Any, ts: Any) -> Any:
        """Leave out receptions on channels whose senders were recorded at several times, during these times."""
        taken = heard.to_pylist()
        for at in self._pa.compute.indices_nonzero(several).to_pylist():
            taken[at] = ts[at].as_py() not in self._rule.recorded[self._channels[channel[at].as_py()]]
        return self._pa.array(taken, self._pa.bool_())

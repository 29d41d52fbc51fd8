"""Calls to models in the log: `asked` and `answered`, by the endpoint of whoever asks.

The payload of both is the body, and `from_id` of the question and `to_id` of the answer the agent. The answer names the
question as its `cause`. Both have the number of the last message that the endpoint had fetched by then.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from ..actors import current
from ..endpoint import Endpoint
from ..record import MessageRecord
from ..transport import of_process
from ..variables import BODIES
from .exchange import Answer, Call
from .public import PublicCall, public_answer

MOST_BODY = 32 << 20
"""Largest body (bytes) that is kept; of a larger one, its size and SHA-256 are."""


@dataclass(slots=True, eq=False)
class Recording:
    """Exchange of a call that is recorded."""

    call: Call
    endpoint: Endpoint
    agent: Any
    question: MessageRecord

    @classmethod
    def of(cls, call: Call, public: PublicCall) -> Recording:
        """Return the exchange of a call of the current task. `public` is what may be kept of it beside its body."""
        found, agent = current()
        endpoint = found if isinstance(found, Endpoint) else of_process().endpoint(agent)
        known = {"method": public.method, "url": public.url, "client": call.client, "headers": dict(public.headers)}
        body, meta = _kept(call.body, known)
        question = MessageRecord("asked", endpoint.clock.now(), None, body, agent, meta=meta, places={})
        return cls(call, endpoint, agent, question)

    async def serve(self) -> Answer | None:
        """Return None: the model is asked."""
        return None

    def serve_now(self) -> Answer | None:
        """Return None: the model is asked."""
        return None

    def asked(self) -> None:
        """Log the question."""
        self.question.ts = self.endpoint.clock.now()
        self.endpoint.tell(self.endpoint.stamp(self.question))

    def answered(self, answer: Answer) -> None:
        """Log the answer, as far as it may be kept."""
        answer = public_answer(answer)
        meta: dict[str, Any] = {"status": answer.status, "headers": dict(answer.headers)}
        if len(answer.chunks) > 1:
            meta["chunks"] = [[ns // 1000, len(chunk)] for ns, chunk in zip(answer.times, answer.chunks, strict=True)]
        if answer.error is not None:
            meta["error"] = list(answer.error)
        if answer.unread:
            meta["unread"] = True
        body, meta = _kept(answer.body, meta)
        now = self.endpoint.clock.now()
        record = MessageRecord("answered", now, None, body, None, self.agent, meta=meta, places=self.question.places)
        record.duration_ns = max(now - self.question.ts, 0)
        self.endpoint.tell(self.endpoint.stamp(record))


def answer_of(payload: bytes, meta: dict[str, Any]) -> Answer:
    """Return a recorded answer. Its times are ns since the call."""
    found = Answer(int(meta.get("status", 0)), [(str(name), str(value)) for name, value in meta["headers"].items()])
    at = 0
    for microseconds, size in meta.get("chunks") or [[0, len(payload)]]:
        found.chunks.append(payload[at : at + size])
        found.times.append(microseconds * 1000)
        at += size
    if (error := meta.get("error")) is not None:
        found.error = str(error[0]), str(error[1])
    found.unread = bool(meta.get("unread"))
    return found


def _kept(body: bytes, meta: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return a body and its meta; of a body that is not kept, its size and digest."""
    if len(body) <= MOST_BODY and os.environ.get(BODIES) != "none":
        return body, meta
    return b"", {**meta, "body": {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}}

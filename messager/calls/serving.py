"""Calls that are answered from a recording, in the schedule of the endpoint of whoever asks."""

from __future__ import annotations

import asyncio
from typing import Protocol, runtime_checkable

from ..hooks import say
from ..record import MessageRecord
from .exchange import Answer, CallRefused
from .recording import Recording, answer_of


@runtime_checkable
class AnswersCalls(Protocol):
    """Gate that has the recorded answers of an endpoint."""

    async def asking(self, question: MessageRecord) -> MessageRecord:
        """Return the recorded answer to a question, once it is its turn. Raises `CallRefused`."""

    def asking_now(self, question: MessageRecord) -> MessageRecord:
        """Return it without waiting, in the thread of the event loop of the gate. Raises `CallRefused`."""


class Serving(Recording):
    """Exchange of a call that is answered from the recording, and recorded again."""

    async def serve(self) -> Answer | None:
        """Return the recorded answer, once it is its turn. Raises `CallRefused`."""
        loop = self.endpoint.gate_loop or self.endpoint.loop
        if loop is None or loop is asyncio.get_running_loop():
            return await self._given()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._given(), loop))

    def serve_now(self) -> Answer | None:
        """Return the recorded answer, once it is its turn. Raises `CallRefused`."""
        loop = self.endpoint.gate_loop or self.endpoint.loop
        if loop is not None and asyncio._get_running_loop() is not loop:
            return asyncio.run_coroutine_threadsafe(self._given(), loop).result()
        self.asked()
        try:
            return self._logged(self._gate().asking_now(self.question))
        except CallRefused as error:
            self._refused(error)
            raise

    async def _given(self) -> Answer:
        """Log the question, and the answer in the same step in which the gate gives it."""
        await self.endpoint.find_gate()
        self.asked()
        try:
            return self._logged(await self._gate().asking(self.question))
        except CallRefused as error:
            self._refused(error)
            raise

    def _gate(self) -> AnswersCalls:
        if not isinstance(self.endpoint.gate, AnswersCalls):
            raise CallRefused(
                "this call is made before its endpoint has a place in the schedule: fetch or send first, or call the "
                "client with `await`"
            )
        return self.endpoint.gate

    def _logged(self, record: MessageRecord) -> Answer:
        answer = answer_of(record.payload, record.meta or {})
        self.answered(answer)
        return answer

    def _refused(self, error: CallRefused) -> None:
        say(str(error))
        self.answered(Answer(0, [], error=(type(error).__name__, str(error))))

"""Messages between A2A agents: requests, answers, streams and failures, at the client and at the server.

    from messager.compat import a2a

    a2a.install()                   # in each process

    with a2a.agent("alice"):        # whoever sends from here; an agent that is itself a server needs no such line
        async for event in client.send_message(request): ...

A client tells the server its name in a header, so that both ends log the same sender.
"""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from ..endpoint import Endpoint
from ..record import MessageRecord, Outcome
from ..transport import Transport, of_process
from .patching import Patches
from .quietly import Quietly

SENDER = "x-messager-from"
"""Header (gRPC: metadata) with the name of the agent that sends a request, as JSON."""
ANSWERS = {
    "Task": "task",
    "Message": "message",
    "TaskStatusUpdateEvent": "status_update",
    "TaskArtifactUpdateEvent": "artifact_update",
}
"""Types of answers, with the end of the channel of each: its field in A2A's `StreamResponse`."""
_UNREACHED = {"ConnectError", "ConnectTimeout"}

AsDict = Callable[[Any], dict[str, Any]]

_speaker: ContextVar[Any] = ContextVar("speaker", default=None)
_installed: Patches | None = None


@contextmanager
def agent(name: Any) -> Iterator[None]:
    """Name the agent that sends the requests of this block, and of the tasks that it starts."""
    token = _speaker.set(name)
    try:
        yield
    finally:
        _speaker.reset(token)


class _Installation(Patches):
    def uninstall(self) -> None:
        global _installed
        if _installed is self:
            _installed = None
        super().uninstall()


def install(transport: Transport | None = None) -> Patches:
    """Record an installed a2a-sdk from now on. A second call changes nothing, until `uninstall`.

    Call it before clients and servers are made; a client that was made meanwhile stays as it is. Without a transport,
    that of the process is used. Raises `ImportError` if a2a-sdk cannot be imported, and `AttributeError` or `KeyError`
    for a version that has other classes; nothing is changed then.
    """
    global _installed
    if _installed is None:
        made, as_dict = _Installation(), import_module("google.protobuf.json_format").MessageToDict
        recording = Recording(transport, as_dict, import_module("a2a.client.client").ClientCallContext)
        handlers = "a2a.server.request_handlers"
        try:
            record_clients(made, recording, import_module("a2a.client.base_client").BaseClient)
            record_server(made, recording, import_module(f"{handlers}.default_request_handler").LegacyRequestHandler)
            v2 = import_module(f"{handlers}.default_request_handler_v2").DefaultRequestHandlerV2
            record_server(made, recording, v2)
        except BaseException:
            made.uninstall()
            raise
        _installed = made
    return _installed


def record_clients(patches: Patches, recording: Recording, client: Any) -> None:
    """Record the requests of the objects of a class with the interface of `BaseClient`."""
    init = client.__init__

    @functools.wraps(init)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        with recording.quietly:
            _ = recording.transport  # starts it before the first request, which it would delay
            way = self._transport  # what interceptors change is changed by then
            way.send_message = recording.asking(self, way.send_message)
            way.send_message_streaming = recording.asking_for_stream(self, way.send_message_streaming)

    patches.change(client, "__init__", recorded)


def record_server(patches: Patches, recording: Recording, handler: Any) -> None:
    """Record what a class with the interface of `DefaultRequestHandler` gets and answers."""
    init = handler.__init__

    @functools.wraps(init)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        with recording.quietly:
            _ = recording.transport

    patches.change(handler, "__init__", recorded)
    patches.change(handler, "on_message_send", recording.answering(handler.on_message_send))
    patches.change(handler, "on_message_send_stream", recording.answering_with_stream(handler.on_message_send_stream))


class Recording:
    """What is noted of the calls of clients and servers."""

    def __init__(self, transport: Transport | None, as_dict: AsDict, context: Any) -> None:
        """`as_dict` returns the JSON form of a message of A2A; `context` is the class `ClientCallContext`."""
        self._given = transport
        self.context = context
        self.quietly = Quietly("A2A")
        self._as_dict = as_dict

    @property
    def transport(self) -> Transport:
        return self._given or of_process()

    def payload(self, message: Any) -> str:
        """Return the same text for equal messages, at both ends."""
        return json.dumps(self._as_dict(message), sort_keys=True, ensure_ascii=False)

    def failure(self, request: Any) -> dict[str, Any]:
        """Return the payload of an answer that is an error. Its text is in the meta: both ends have their own."""
        return {"failed": request.message.message_id}

    def asking(self, client: Any, send: Any) -> Any:
        @functools.wraps(send)
        async def send_message(request: Any, *, context: Any = None, **kwargs: Any) -> Any:
            call = _Asked(self)
            with self.quietly:
                context = call.ask(client._card.name, "send_message", request, context)
            try:
                response = await send(request, context=context, **kwargs)
            except BaseException as error:
                call.failed(error)
                raise
            call.answered(response)
            return response

        return send_message

    def asking_for_stream(self, client: Any, send: Any) -> Any:
        @functools.wraps(send)
        async def send_message_streaming(request: Any, *, context: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
            call = _Asked(self)
            with self.quietly:
                context = call.ask(client._card.name, "send_message_streaming", request, context)
            try:
                async with aclosing(send(request, context=context, **kwargs)) as stream:
                    async for response in stream:
                        call.answered(response)
                        yield response
            except GeneratorExit:  # the caller has heard enough
                raise
            except BaseException as error:
                call.failed(error)
                raise

        return send_message_streaming

    def answering(self, answer: Any) -> Any:
        @functools.wraps(answer)
        async def on_message_send(handler: Any, params: Any, context: Any, *args: Any, **kwargs: Any) -> Any:
            call = _Heard(self)
            with self.quietly:
                call.hear(handler._agent_card.name, "send_message", params, context)
            try:
                with agent(call.name):
                    event = await answer(handler, params, context, *args, **kwargs)
            except Exception as error:
                call.failed(error)
                raise
            call.answer(event)
            return event

        return on_message_send

    def answering_with_stream(self, answer: Any) -> Any:
        @functools.wraps(answer)
        async def on_message_send_stream(
            handler: Any, params: Any, context: Any, *args: Any, **kwargs: Any
        ) -> AsyncIterator[Any]:
            call = _Heard(self)
            with self.quietly:
                call.hear(handler._agent_card.name, "send_message_streaming", params, context)
            async with aclosing(answer(handler, params, context, *args, **kwargs)) as stream:
                while True:
                    try:
                        with agent(call.name):  # not while the consumer runs, which has the same context
                            event = await anext(stream)
                    except StopAsyncIteration:
                        return
                    except Exception as error:
                        call.failed(error)
                        raise
                    call.answer(event)
                    yield event

        return on_message_send_stream


class _Asked:
    """A request, at the client."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._noted: tuple[Endpoint, MessageRecord] | None = None
        self._failure: dict[str, Any] = {}

    def ask(self, name: str, method: str, request: Any, context: Any) -> Any:
        """Log a request, and return its context with the name of the sender."""
        speaker, recording = _speaker.get(), self._recording
        endpoint = recording.transport.endpoint(speaker)
        channel, payload = f"a2a:{name}:{method}", recording.payload(request.message)
        self._failure = recording.failure(request)
        self._noted = endpoint, endpoint.sent(channel, payload, speaker, name, carrier="call")
        if speaker is None:
            return context
        context = recording.context() if context is None else context
        parameters = {**(context.service_parameters or {}), SENDER: json.dumps(speaker)}
        return context.model_copy(update={"service_parameters": parameters})

    def answered(self, response: Any) -> None:
        """Log a `SendMessageResponse` or a `StreamResponse`."""
        with self._recording.quietly:
            if self._noted is not None:
                endpoint, record = self._noted
                field = response.WhichOneof("payload")
                if field is not None:
                    payload = self._recording.payload(getattr(response, field))
                    channel, to_id = f"a2a:{record.to_id}:{field}", record.from_id
                    endpoint.received(channel, payload, record.to_id, to_id, carrier="call")

    def failed(self, error: BaseException) -> None:
        with self._recording.quietly:
            if self._noted is None:
                return
            endpoint, record = self._noted
            if _is_answer(error):
                channel, to_id = f"a2a:{record.to_id}:error", record.from_id
                endpoint.received(channel, self._failure, record.to_id, to_id, carrier="call", error=_text(error))
            else:
                endpoint.failed(record, error, _outcome(error))


class _Heard:
    """A request, at the server."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.name: Any = None
        self._sender: Any = None
        self._endpoint: Endpoint | None = None
        self._failure: dict[str, Any] = {}

    def hear(self, name: str, method: str, params: Any, context: Any) -> None:
        self.name, self._sender, self._failure = name, _sender(context), self._recording.failure(params)
        self._endpoint = self._recording.transport.endpoint(name)
        payload = self._recording.payload(params.message)
        self._endpoint.received(f"a2a:{name}:{method}", payload, self._sender, name, carrier="call")

    def answer(self, event: Any) -> None:
        with self._recording.quietly:
            if self._endpoint is not None:
                channel = f"a2a:{self.name}:{ANSWERS[type(event).__name__]}"
                payload = self._recording.payload(event)
                self._endpoint.sent(channel, payload, self.name, self._sender, carrier="call")

    def failed(self, error: Exception) -> None:
        with self._recording.quietly:
            if self._endpoint is not None:
                channel = f"a2a:{self.name}:error"
                self._endpoint.sent(channel, self._failure, self.name, self._sender, carrier="call", error=_text(error))


def _sender(context: Any) -> Any:
    """Return the name of the sender of a request, None if it does not tell it."""
    headers = context.state.get("headers") or {}
    try:
        return json.loads(headers[SENDER])
    except (KeyError, ValueError):
        return None


def _is_answer(error: BaseException) -> bool:
    """Return True for an error that the other agent has answered, False for one of the way to it."""
    names = {base.__name__ for base in type(error).__mro__}
    return "A2AError" in names and "A2AClientError" not in names


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _outcome(error: BaseException | None) -> Outcome:
    """Return `not_sent` if no connection could be made: the agent has not got the request."""
    while error is not None:
        if type(error).__name__ in _UNREACHED:
            return "not_sent"
        error = error.__cause__ or error.__context__
    return "unknown"

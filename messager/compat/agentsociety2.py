"""Messages of an installed agentsociety2: those of its social space, and what its agents ask their environment.

    from messager.compat import agentsociety2

    agentsociety2.install()

Call it before the society is made. Ray workers that agentsociety2 starts record into the same experiment. What an agent
asks the environment is logged where it is asked and, if the environment is a Ray actor, there where it is heard.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ..record import Outcome
from ..transport import Transport, of_process
from ..variables import EXP, RUN
from .patching import Patches
from .quietly import Quietly

ENVIRONMENT = "env"
"""Id of the environment in the log."""
ROUTERS = {
    "router_codegen": "CodeGenRouter",
    "router_react": "ReActRouter",
    "router_plan_execute": "PlanExecuteRouter",
    "router_two_tier_react": "TwoTierReActRouter",
    "router_two_tier_plan_execute": "TwoTierPlanExecuteRouter",
    "router_search_tool": "SearchToolRouter",
}
"""Modules of agentsociety2.env with a class that answers what agents ask."""
_SETUP_HOOK = "worker_process_setup_hook"

Tool = Callable[..., Any]

_installed: Patches | None = None


class _Installation(Patches):
    def uninstall(self) -> None:
        global _installed
        if _installed is self:
            _installed = None
        super().uninstall()


def install(transport: Transport | None = None) -> Patches:
    """Record an installed agentsociety2 from now on. A second call changes nothing, until `uninstall`.

    Without a transport, that of the process is used. Raises `ImportError` if agentsociety2 cannot be imported, and
    `AttributeError` or `KeyError` for a version that has other classes; nothing is changed then.
    """
    global _installed
    if _installed is None:
        made, recording, env = _Installation(), Recording(transport), "agentsociety2.env"
        try:
            space = import_module("agentsociety2.contrib.env.simple_social_space").SimpleSocialSpace
            record_space(made, recording, space)
            record_asks(made, recording, import_module(f"{env}.env_router_proxy").EnvRouterProxy, answers=False)
            start_early(made, recording, import_module(f"{env}.router_base").RouterBase)
            for module, name in ROUTERS.items():
                record_asks(made, recording, getattr(import_module(f"{env}.{module}"), name), answers=True)
            reach_workers(made, recording, import_module("agentsociety2.config.llm_dispatcher"))
        except BaseException:
            made.uninstall()
            raise
        _installed = made
    return _installed


def set_up_worker() -> None:
    """Record a worker of Ray, which calls this when it starts."""
    install()


def record_space(patches: Patches, recording: Recording, space: Any) -> None:
    """Record the tools of a class with the interface of `SimpleSocialSpace`."""
    for name, wrap in {
        "send_message": recording.sending,
        "send_group_message": recording.sending_to_group,
        "receive_messages": recording.receiving,
    }.items():
        tool = space._registered_tools[name]
        wrapped = wrap(tool.fn)
        patches.change(tool, "fn", wrapped)  # a router calls this one, and generated code the method
        patches.change(space, name, wrapped)


def record_asks(patches: Patches, recording: Recording, router: Any, *, answers: bool) -> None:
    """Record what agents ask of a class with the interface of `EnvLike`. `answers` is False for a proxy."""
    patches.change(router, "ask", recording.asking(router.ask, answers))


def start_early(patches: Patches, recording: Recording, router: Any) -> None:
    """Start the transport of a process with a router before the first question, which it would delay."""
    init = router.__init__

    @functools.wraps(init)
    def starting(*args: Any, **kwargs: Any) -> None:
        init(*args, **kwargs)
        with recording.quietly:
            _ = recording.transport

    patches.change(router, "__init__", starting)


def reach_workers(patches: Patches, recording: Recording, dispatcher: Any) -> None:
    """Let the Ray workers that agentsociety2 starts record into the experiment of this process."""
    build = dispatcher._build_ray_job_config

    @functools.wraps(build)
    def building() -> Any:
        config = build()
        with recording.quietly:
            env = dict(config.runtime_env)
            if not os.environ.get(EXP):
                name = RUN if recording.given is None else EXP
                env["env_vars"] = {name: recording.transport.exp_id, **env.get("env_vars", {})}
            config.set_runtime_env({_SETUP_HOOK: f"{__name__}.{set_up_worker.__name__}", **env})
        return config

    patches.change(dispatcher, build.__name__, building)


class Recording:
    """What is noted of the calls of agentsociety2's methods."""

    def __init__(self, transport: Transport | None) -> None:
        self.given = transport
        self.quietly = Quietly("agentsociety2")

    @property
    def transport(self) -> Transport:
        return self.given or of_process()

    def sending(self, tool: Tool) -> Tool:
        """Wrap `send_message(sender_id, receiver_id, content)`."""
        parameters = inspect.signature(tool)

        @functools.wraps(tool)
        async def send_message(*args: Any, **kwargs: Any) -> Any:
            outcome = _Sending(self)
            with self.quietly:
                given = parameters.bind(*args, **kwargs).arguments
                outcome.begin(personal(given["receiver_id"]), given, given["receiver_id"])
            return await outcome.of(tool(*args, **kwargs))

        return send_message

    def sending_to_group(self, tool: Tool) -> Tool:
        """Wrap `send_group_message(sender_id, group_id, content)`."""
        parameters = inspect.signature(tool)

        @functools.wraps(tool)
        async def send_group_message(*args: Any, **kwargs: Any) -> Any:
            outcome = _Sending(self)
            with self.quietly:
                given = parameters.bind(*args, **kwargs).arguments
                outcome.begin(group(given["group_id"]), given, None)
            answer = await outcome.of(tool(*args, **kwargs))
            with self.quietly:
                if not answer.recipient_count:
                    outcome.failed("the sender is not in this group, or there is none", "not_sent")
            return answer

        return send_group_message

    def receiving(self, tool: Tool) -> Tool:
        """Wrap `receive_messages(agent_id)`, which empties the mailbox of an agent."""

        @functools.wraps(tool)
        async def receive_messages(*args: Any, **kwargs: Any) -> Any:
            answer = await tool(*args, **kwargs)
            with self.quietly:
                agent = self.transport.endpoint(answer.agent_id)
                for message in answer.messages:
                    of_group = message.get("group_id") is not None
                    to_id = None if of_group else answer.agent_id
                    channel = group(message["group_id"]) if of_group else personal(to_id)
                    agent.received(channel, _payload(message), message["sender_id"], to_id, carrier="queue")
            return answer

        return receive_messages

    def asking(self, ask: Tool, answers: bool) -> Tool:
        """Wrap `ask(ctx, instruction, readonly, ...)` of a router or of a proxy."""
        parameters = inspect.signature(ask)

        @functools.wraps(ask)
        async def asking(*args: Any, **kwargs: Any) -> Any:
            call = _Asking(self, answers)
            with self.quietly:
                call.asked(parameters.bind(*args, **kwargs).arguments)
            answer = await call.of(ask(*args, **kwargs))
            with self.quietly:
                call.answered(answer)
            return answer

        return asking


class _Sending:
    """A message that is logged before the call that sends it, as its recipient may be faster than the answer."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._noted: tuple[Any, Any] | None = None

    def begin(self, channel: str, given: Mapping[str, Any], to_id: Any) -> None:
        sender = _number(given["sender_id"])
        endpoint = self._recording.transport.endpoint(sender)
        self._noted = endpoint, endpoint.sent(channel, _payload(given), sender, _number(to_id), carrier="queue")

    def failed(self, error: BaseException | str, outcome: Outcome) -> None:
        if self._noted is not None:
            endpoint, record = self._noted
            endpoint.failed(record, error, outcome)

    async def of(self, call: Any) -> Any:
        """Await the call. Raises what it raises; the message then counts as failed."""
        try:
            return await call
        except BaseException as error:
            with self._recording.quietly:
                self.failed(error, "unknown")
            raise


class _Asking(_Sending):
    """A call of an agent to the environment, at the ends that are in this process."""

    def __init__(self, recording: Recording, answers: bool) -> None:
        super().__init__(recording)
        self._answers = answers
        self._asks = not (answers and _in_actor())  # an actor is asked through a proxy, which logs that
        self._agent: Any = None

    def asked(self, given: Mapping[str, Any]) -> None:
        ctx = given["ctx"]
        self._agent = next((ctx[key] for key in ("agent_id", "id", "person_id") if key in ctx), None)
        asked = {"content": given["instruction"], "readonly": given.get("readonly", False)}
        message = f"env:{self._agent}:ask", asked, self._agent, ENVIRONMENT
        transport = self._recording.transport
        if self._asks:
            endpoint = transport.endpoint(self._agent)
            self._noted = endpoint, endpoint.sent(*message, carrier="call")
        if self._answers:
            transport.endpoint(ENVIRONMENT).received(*message, carrier="call")

    def answered(self, answer: Any) -> None:
        message = f"env:{self._agent}:answer", {"content": answer[1]}, ENVIRONMENT, self._agent
        transport = self._recording.transport
        if self._answers:
            transport.endpoint(ENVIRONMENT).sent(*message, carrier="call")
        if self._asks:
            transport.endpoint(self._agent).received(*message, carrier="call")


def personal(agent: Any) -> str:
    """Return the channel of the mailbox of an agent."""
    return f"social:agents:{agent}"


def group(number: Any) -> str:
    """Return the channel of a group."""
    return f"social:groups:{number}"


def _payload(message: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": message["content"]}


def _number(agent: Any) -> Any:
    """Return the id that the space makes of one that a model has written as text."""
    return int(agent) if isinstance(agent, str) and agent.isdecimal() else agent


def _in_actor() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None

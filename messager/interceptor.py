"""Call of an interceptor, which permits or refuses a message.

Contract of AgentSociety 1.3: `forward(from_id, to_id, message)` returns a truth value, and is called only if both ids
are given. The interceptor is an object with an ordinary or async `forward`, or the handle of a Ray actor, whose
methods are called through `.remote`. Ray is never imported here.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

MOST_REASON = 10_000
"""Characters that are kept of the reason of an interceptor."""
_ACTOR = re.compile(r"Actor\(([^,()]+),")


async def refusal(interceptor: Any, from_id: Any, to_id: Any, message: str) -> dict[str, Any] | None:
    """Return None if `message` (the JSON text to be sent) may pass, else the meta of its record. Raises what `forward`
    raises.

    The meta names the class of the interceptor, and has the `reason` of an answer with that attribute.
    """
    forward = interceptor.forward
    call = getattr(forward, "remote", forward)
    answer = call(from_id, to_id, message)
    if inspect.isawaitable(answer):
        answer = await answer
    if answer:
        return None
    meta = {"interceptor": _name(interceptor)}
    reason = getattr(answer, "reason", None)
    return meta if reason is None else meta | {"reason": str(reason)[:MOST_REASON]}


def _name(interceptor: Any) -> str:
    """Return the name of the class of an interceptor, or of a Ray actor, whose handle is written `Actor(Class, id)`."""
    actor = _ACTOR.match(repr(interceptor)) if hasattr(interceptor.forward, "remote") else None
    return type(interceptor).__qualname__ if actor is None else actor[1]

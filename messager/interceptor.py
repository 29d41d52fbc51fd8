"""Asking an interceptor whether a message may pass.

The contract is AgentSociety's: `forward(from_id, to_id, message)` says yes or no,
and is asked only when both ids are known. It may be a plain object with an async
(or ordinary) `forward`, or the handle of a Ray actor, whose methods are called
through `.remote`. Ray itself is never imported here.
"""

from __future__ import annotations

import inspect
from typing import Any


async def allows(interceptor: Any, from_id: Any, to_id: Any, message: str) -> bool:
    """Whether `message` (the JSON text about to be sent) may pass. Raises what `forward` raises."""
    forward = interceptor.forward
    call = getattr(forward, "remote", forward)
    answer = call(from_id, to_id, message)
    if inspect.isawaitable(answer):
        answer = await answer
    return bool(answer)

"""Live programs of other processes join a replay: they announce themselves, and are observed on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from messager.brokers import Broker, kind_of

from ..errors import ReplayFailed
from .announcing import Announcing
from .cast import make_cast
from .run import Lockstep
from .schedule import Part

NAMED = 5
"""Maximum number of Messagers, or of channels, that a text names."""


@asynccontextmanager
async def joined(lockstep: Lockstep, broker: Broker, exp_id: str, *, without_messager: bool) -> AsyncIterator[None]:
    """Context in which live programs with this exp_id take the parts that no Messager of this process has.

    It begins when they have announced themselves, or patience ends; with `without_messager`, they are programs that do
    not. Programs that play somebody else, or are not subscribed, are noted in the report at the end. Raises
    `ReplayFailed` if nobody came for any of the parts.
    """
    announcing = Announcing(
        *(broker, exp_id, lockstep.presence, kind_of(broker.url)),
        failed=lockstep.stop,
        note=lockstep.report.notes.append,
    )
    async with announcing, lockstep.observer(broker):
        remote = [part for part in lockstep.cast.parts if part.key not in lockstep.gates]
        if remote:
            await announcing.start(part.key for part in lockstep.cast.parts)
            if without_messager:
                lockstep.unannounced(remote)
            else:
                await lockstep.policy.until_there(remote)
                if not lockstep.gates and not any(part.key in lockstep.presence.remote for part in remote):
                    why = _nobody_came(lockstep, exp_id, remote), announcing.refusals()
                    raise ReplayFailed(". ".join(filter(None, why)))
        yield
        if others := _others(lockstep):
            lockstep.report.notes.append(
                f"live programs of {exp_id} play {others}, whose messages were published from the recording as well"
            )


def _nobody_came(lockstep: Lockstep, exp_id: str, remote: list[Part]) -> str:
    seconds = f"{lockstep.patience.seconds:g} s"
    if others := _others(lockstep):
        awaited = "; ".join(part.label for part in remote[:NAMED])
        return (
            f"no live program of {exp_id} came for {awaited} within {seconds}; those that came play {others}. Name the "
            "agents that they play with --live, or start the programs of the others"
        )
    return (
        f"no live program of {exp_id} came within {seconds}. Start it with this exp_id, and with "
        f"MESSAGER_REPLAY={lockstep.recording.exp_id} in its environment, or give --wait-for-subscribers for a program "
        "without a Messager of this package"
    )


def _others(lockstep: Lockstep) -> str:
    """Return a text that names what live programs play although it is not live here; empty if there is nothing."""
    here = {key for part in lockstep.cast.parts for key in (part.key, *part.joined)}
    keys = lockstep.presence.remote.keys() - here
    everybody = make_cast(lockstep.recording, "all", lockstep.wire).parts if keys else []
    return "; ".join([part.label for part in everybody if part.key in keys][:NAMED])

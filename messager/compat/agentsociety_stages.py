"""Marks for the steps and stages of a society of AgentSociety 1.3 or 1.5."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from .patching import Patches

Mark = Callable[..., None]
"""Makes a mark: called with the society, the name, and the fields by name. Never raises."""

STAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "run_one_day": ("day", ()),
    "next_round": ("next_round", ()),
    "send_survey": ("survey", ("agent_ids",)),
    "send_interview_message": ("interview", ("agent_ids",)),
    "send_intervention_message": ("intervention", ("agent_ids",)),
    "update_environment": ("environment", ("key", "value")),
    "update": ("update_state", ("target_agent_ids", "target_key")),
}
"""Methods of AgentSociety that are stages: the name of the mark, and the arguments that it has as fields."""

log = logging.getLogger("messager")


def mark_stages(patches: Patches, society: Any, mark: Mark) -> None:
    """Let the methods of a class of societies make marks. Raises `AttributeError` if it has not all of them."""
    for method in ("step", "run", *STAGES):
        getattr(society, method)  # before anything is changed
    patches.change(society, "step", _marking_steps(society.step, mark))
    patches.change(society, "run", _marking_the_end(society.run, mark))
    for method, (name, told) in STAGES.items():
        patches.change(society, method, _marking(vars(society)[method], name, told, mark))


def _marking_steps(step: Callable[..., Any], mark: Mark) -> Callable[..., Any]:
    @functools.wraps(step)
    async def marking(self: Any, *args: Any, **kwargs: Any) -> Any:
        day, t = _time_of(self)
        mark(self, "step", number=getattr(self, "_total_steps", None), day=day, t=t)
        return await step(self, *args, **kwargs)

    return marking


def _marking_the_end(run: Callable[..., Any], mark: Mark) -> Callable[..., Any]:
    @functools.wraps(run)
    async def marking(self: Any, *args: Any, **kwargs: Any) -> Any:
        functions = _mark_functions(self, mark)
        try:
            done = await run(self, *args, **kwargs)
        finally:
            for stage, function in functions:
                stage.func = function
        mark(self, "end")
        return done

    return marking


class _MarkedFunction:
    """Function of a stage, which `run` calls directly: makes a mark, then calls the function."""

    def __init__(self, function: Callable[..., Any], description: str | None, mark: Mark) -> None:
        named = function.func if isinstance(function, functools.partial) else function
        self.__name__ = getattr(named, "__name__", type(named).__name__)  # AgentSociety reads it too
        self._function = function
        self._description = description
        self._mark = mark

    def __call__(self, society: Any) -> Any:
        day, t = _time_of(society)
        self._mark(society, "function", day=day, t=t, function=self.__name__, description=self._description)
        return self._function(society)


def _mark_functions(society: Any, mark: Mark) -> list[tuple[Any, Callable[..., Any]]]:
    """Let the functions of a workflow make marks. Return the changed stages with their original functions."""
    changed = []
    try:
        for stage in society.config.exp.workflow:
            if stage.type == "function" and not isinstance(stage.func, _MarkedFunction):
                marked = _MarkedFunction(stage.func, stage.description, mark)
                changed.append((stage, stage.func))
                stage.func = marked
    except Exception:
        log.exception("the functions of %s are not marked", getattr(society, "exp_id", "a society"))
    return changed


def _marking(method: Callable[..., Any], name: str, told: tuple[str, ...], mark: Mark) -> Callable[..., Any]:
    """Wrap a stage: make a mark with some of the arguments, then call the method."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    async def marking(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        day, t = _time_of(self)
        mark(self, name, day=day, t=t, **{key: given[key] for key in told if key in given})
        return await method(self, *args, **kwargs)

    return marking


def _time_of(society: Any) -> tuple[Any, Any]:
    """Return the day and the second of the day in the society; None if it has no time yet."""
    try:
        day, t = society.environment.get_datetime()
    except Exception:
        return None, None
    return day, t

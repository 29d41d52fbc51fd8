"""An installed AgentSociety 1.3 on this Messager.

    from messager.compat import agentsociety

    agentsociety.install()

or `with agentsociety.install():`, which restores AgentSociety at the end. AgentSociety then creates Messagers of this
package; its steps and stages become marks in the log, and its configuration, without secrets, the meta of the
experiment. AgentSociety creates its Messagers without an interceptor, even if one is configured; that is unchanged.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable
from importlib import import_module, metadata
from types import ModuleType
from typing import Any

from ..errors import MessagerError
from ..messager import Messager
from .patching import Patches
from .settings import without_secrets

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

_societies: dict[str, tuple[str, dict[str, Any]]] = {}  # name and meta by exp_id
_installed: Installation | None = None


class NoAgentSociety(MessagerError):
    """AgentSociety 1.3 is not installed. Install it with `pip install 'agentsociety>=1.3,<1.4'`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. Install it with `pip install 'agentsociety>=1.3,<1.4'`")


class SocietyMessager(Messager):
    """Messager that AgentSociety gets. It describes the experiment to its hooks."""

    def __init__(self, config: Any, exp_id: str, message_interceptor: Any = None) -> None:
        super().__init__(config, exp_id, message_interceptor)
        name, meta = _societies.get(exp_id, (None, {}))
        self.describe(name, **meta)


class Installation(Patches):
    """Changes of `install`. A context manager that undoes them."""

    def __init__(self, original: type) -> None:
        super().__init__()
        self._original = original

    def uninstall(self) -> None:
        """Restore everything. Messagers made meanwhile are not changed."""
        global _installed
        if _installed is not self:
            return
        _installed = None
        _societies.clear()
        super().uninstall()
        for module in _modules_with(SocietyMessager):  # imported meanwhile
            vars(module)["Messager"] = self._original


def install() -> Installation:
    """Let AgentSociety use this Messager from now on. A second call changes nothing.

    Call it before a society is made. Groups that are Ray actors use it too, as Ray sends them the changed class.
    Raises `NoAgentSociety` if AgentSociety 1.3 cannot be imported.
    """
    global _installed
    if _installed is not None:
        return _installed
    original, society = _agentsociety()
    made = Installation(original)
    for module in _modules_with(original):
        made.change(module, "Messager", SocietyMessager)
    made.change(society, "__init__", _describing(society.__init__))
    made.change(society, "step", _marking_steps(society.step))
    made.change(society, "run", _marking_the_end(society.run))
    for method, (name, told) in STAGES.items():
        made.change(society, method, _marking(vars(society)[method], name, told))
    _installed = made
    return made


def uninstall() -> None:
    """Undo `install`, if it was called."""
    if _installed is not None:
        _installed.uninstall()


def _agentsociety() -> tuple[type, Any]:
    """Return AgentSociety's own Messager and its class AgentSociety."""
    try:
        version = metadata.version("agentsociety")
    except metadata.PackageNotFoundError:
        version = "1.3"  # not installed as a package, so unknown
    if not version.startswith("1.3"):
        raise NoAgentSociety(f"this is AgentSociety {version}")
    try:
        messaging = import_module("agentsociety.message.messager")
        simulation = import_module("agentsociety.simulation.agentsociety")
        original, society = messaging.Messager, simulation.AgentSociety
        for method in ("step", "run", *STAGES):
            getattr(society, method)
    except (ImportError, AttributeError) as error:
        raise NoAgentSociety(f"AgentSociety 1.3 cannot be imported: {error}") from error
    return original, society


def _modules_with(messager: type) -> list[ModuleType]:
    """Return the modules of AgentSociety in which this class is named Messager; the one that defines it is first."""
    named = [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "agentsociety" and vars(module).get("Messager") is messager
    ]
    return sorted(named, key=lambda module: module.__name__ != messager.__module__)


def _describing(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap `AgentSociety.__init__`: keep name and configuration for the Messagers that the society will make."""

    @functools.wraps(init)
    def describing(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        try:
            _societies[self.exp_id] = (str(self.name), {"config": without_secrets(self.config)})
        except Exception:
            log.exception("the configuration of %s is not recorded", getattr(self, "exp_id", "a society"))

    return describing


def _marking_steps(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    async def marking(self: Any, *args: Any, **kwargs: Any) -> Any:
        day, t = _time_of(self)
        _mark(self, "step", number=getattr(self, "_total_steps", None), day=day, t=t)
        return await step(self, *args, **kwargs)

    return marking


def _marking_the_end(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    async def marking(self: Any, *args: Any, **kwargs: Any) -> Any:
        functions = _mark_functions(self)
        try:
            done = await run(self, *args, **kwargs)
        finally:
            for stage, function in functions:
                stage.func = function
        _mark(self, "end")
        return done

    return marking


class _MarkedFunction:
    """Function of a stage, which `run` calls directly: makes a mark, then calls the function."""

    def __init__(self, function: Callable[..., Any], description: str | None) -> None:
        named = function.func if isinstance(function, functools.partial) else function
        self.__name__ = getattr(named, "__name__", type(named).__name__)  # AgentSociety reads it too
        self._function = function
        self._description = description

    def __call__(self, society: Any) -> Any:
        if _installed is not None:
            day, t = _time_of(society)
            _mark(society, "function", day=day, t=t, function=self.__name__, description=self._description)
        return self._function(society)


def _mark_functions(society: Any) -> list[tuple[Any, Callable[..., Any]]]:
    """Let the functions of a workflow make marks. Return the changed stages with their original functions."""
    changed = []
    try:
        for stage in society.config.exp.workflow:
            if stage.type == "function" and not isinstance(stage.func, _MarkedFunction):
                marked = _MarkedFunction(stage.func, stage.description)
                changed.append((stage, stage.func))
                stage.func = marked
    except Exception:
        log.exception("the functions of %s are not marked", getattr(society, "exp_id", "a society"))
    return changed


def _marking(method: Callable[..., Any], name: str, told: tuple[str, ...]) -> Callable[..., Any]:
    """Wrap a stage: make a mark with some of the arguments, then call the method."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    async def marking(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        day, t = _time_of(self)
        _mark(self, name, day=day, t=t, **{key: given[key] for key in told if key in given})
        return await method(self, *args, **kwargs)

    return marking


def _time_of(society: Any) -> tuple[Any, Any]:
    """Return the day and the second of the day in the society; None if it has no time yet."""
    try:
        day, t = society.environment.get_datetime()
    except Exception:
        return None, None
    return day, t


def _mark(society: Any, name: str, **fields: Any) -> None:
    """Make a mark. An error is logged, as it must not stop the society."""
    messager = getattr(society, "_messager", None)
    if isinstance(messager, Messager):
        try:
            messager.mark(name, **without_secrets(fields))
        except Exception:
            log.exception("the mark %s of %s could not be made", name, messager.exp_id)

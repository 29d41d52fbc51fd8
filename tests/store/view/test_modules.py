"""The modules of the page: their types, and their tests, which node runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import programs

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "store" / "view" / "page"
TYPESCRIPT = Path(sys.prefix, "js", "node_modules", "typescript", "bin", "tsc")
"""Installed by `make test`."""


SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|parseFromString|srcdoc|setHTML|document\.write"
    r"|\beval\b|new Function|setTimeout\(\s*[\"'`]|setAttribute\(\s*[\"'`](on|style)|javascript:|\bimport\("
    r"|window\.open|localStorage|sessionStorage|document\.cookie"
)
"""Ways to read text as HTML or script, to open a window, and to keep something on the machine."""


EXPORT = re.compile(r"^export (?:(?:async )?function|const|class) (\w+)", re.M)
IMPORT = re.compile(r'^import \{([^}]*)\} from "[^"]*?(\w+\.js)";$', re.M)
IMPORT_OF_TYPE = re.compile(r'import\("\./(\w+\.js)"\)\.(\w+)')
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


EACH_FILE = """
import { pathToFileURL } from "node:url";

for (const file of process.argv.slice(1)) await import(pathToFileURL(file));
"""
"""Runs the tests of every file in one process: `node --test` starts one for each, which takes most of the time."""


def run_by_node(*arguments: str | Path) -> None:
    """Fail with the output of a program of JavaScript if it fails."""
    done = subprocess.run(
        [programs.node(), *arguments],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    if done.returncode:
        pytest.fail(done.stdout, pytrace=False)


def test_types_are_right() -> None:
    if not TYPESCRIPT.exists():
        programs.lacking("TypeScript is not installed", "install npm, then run make test")
    run_by_node(TYPESCRIPT, "--project", "tsconfig.json")


def test_modules_pass_their_own_tests() -> None:
    files = sorted(HERE.glob("js/*.test.js"))
    assert files
    # A module of the page is a module by its content: no package.json says so.
    of_modules = ("--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", "--input-type=module")
    run_by_node(*of_modules, "--eval", EACH_FILE, *files)


def test_every_export_is_imported_by_a_module_or_a_test() -> None:
    modules = {file.name: file.read_text() for file in PAGE.glob("*.js")}
    tests = [file.read_text() for file in HERE.glob("js/*.js")]
    exported = {(name, each) for name, text in modules.items() for each in EXPORT.findall(text)}
    imported = {
        (name, each.split(" as ")[0].strip())
        for text in [*modules.values(), *tests]
        for names, name in IMPORT.findall(text)
        for each in names.split(",")
    }
    types = {each for text in modules.values() for each in IMPORT_OF_TYPE.findall(text)}
    assert len(exported) > 100
    assert sorted(exported - imported - types) == []


def test_no_module_reads_text_as_html_or_script() -> None:
    files = [file for file in PAGE.rglob("*") if file.suffix in (".js", ".html")]
    assert len(files) > 20
    found = [(file.name, each[0]) for file in files for each in SINKS.finditer(COMMENT.sub("", file.read_text()))]
    assert found == []
    html = (PAGE / "index.html").read_text()
    assert not re.search(r" on\w+=| style=|<script>|https?://|=//", html)

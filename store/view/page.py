"""The parts of the page: its files, and one document that contains all of them.

Browsers load no modules from `file://`, so that a file has one inline script. `script` joins the modules: each becomes
a function that returns its exports. The modules keep to a few forms of import and export, which `script` checks.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from pathlib import Path

FOLDER = Path(__file__).with_name("page")
MAIN = "main.js"
VENDOR = "vendor/uPlot.iife.min.js"

_STYLE = re.compile(r'<link rel="stylesheet" href="/page/([^"]+)">')
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z_]+\.js)";$', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?function |const |class )", re.M)
_NAME = re.compile(r"^export (?:(?:async )?function|const|class) (\w+)", re.M)
_OTHER = re.compile(r"^\s*(?:import|export)\b.*$", re.M)


def read(name: str) -> str:
    """Return the text of a file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return all modules as one module. Raises `ValueError` for a form of import or export that it does not know."""
    done: dict[str, str] = {}
    _join(MAIN, done, ())
    joined = "\n".join(["const modules = {};", *done.values()])
    if "</script" in joined.lower() or "<!--" in joined:
        raise ValueError("a module of the page contains </script or <!--, which would end the inline script")
    return joined


def _join(name: str, done: dict[str, str], within: tuple[str, ...]) -> None:
    """Add a module behind those that it imports."""
    if name in done:
        return
    if name in within:
        raise ValueError(f"modules of the page import each other: {' > '.join((*within, name))}")
    source = read(name)
    for found in _IMPORT.finditer(source):
        _join(found[2], done, (*within, name))
    names = _NAME.findall(source)
    body = _IMPORT.sub(lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = modules['{found[2]}'];", source)
    body = _EXPORT.sub("", body)
    if other := _OTHER.search(body):
        raise ValueError(f"{name}: {other[0].strip()!r} is a form of import or export that cannot be joined")
    if name == MAIN:
        done[name] = body
    else:
        done[name] = f"modules['{name}'] = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();"


def document(title: str, data: str) -> str:
    """Return the page as one document with `data`, elements that hold its data, and a policy for its content."""
    vendor, main = read(VENDOR).strip(), script()
    styles = "\n".join(read(name) for name in _STYLE.findall(read("index.html")))
    policy = (
        f"default-src 'none'; script-src {_hash(vendor)} {_hash(main)}; style-src {_hash(styles)}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        '<link rel="icon" href="data:,">\n'
        f"<style>{styles}</style>\n</head>\n<body>\n"
        '<div id="page" aria-busy="true"><p class="loading">Loading …</p></div>\n'
        f"{data}"
        f"<script>{vendor}</script>\n"
        f'<script type="module">{main}</script>\n'
        "</body>\n</html>\n"
    )


def part(kind: str, run: int, data: bytes) -> str:
    """Return an element with data, which no browser executes."""
    encoded = base64.b64encode(data).decode()
    return f'<script type="application/octet-stream" data-part="{kind}" data-run="{run}">{encoded}</script>\n'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

"""Take the screenshots of README.md and docs/viewing.md: `docs/pictures/view-*.png`.

    PYTHONPATH=. python docs/screenshots.py        # or: make pictures

They show `examples/town.py` in Chromium, which Debian has as the package chromium.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.support.browser import FLAGS
from tests.support.programs import chromium

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
MESSAGER = Path(sys.executable).with_name("messager")

SHOTS = (
    ("read", "town.html", "view=read", "light"),
    ("sequence", "town.html", "view=sequence&q=fire", "light"),
    ("matrix", "town.html", "view=matrix", "dark"),
    ("problems", "town.html", "view=problems", "light"),
    ("compare", "compare.html", "", "light"),
)
"""Name, page, state, colour scheme."""
SIZE = {"width": 1280, "height": 800}


def main() -> None:
    """Record the town, write its pages, and take the screenshots."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        pages = Path(folder)
        run([sys.executable, str(ROOT / "examples" / "town.py"), "town.db"], pages)
        report = [str(MESSAGER), "report", "--store", "town.db", "town"]
        run([*report, "-o", "town.html"], pages)
        run([*report, "town-again", "--ignore", "t", "-o", "compare.html"], pages)
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for name, page, state, scheme in SHOTS:
            shoot(browser, pages / page, state, scheme, PICTURES / f"view-{name}.png")
        browser.close()


def shoot(browser: Browser, page: Path, state: str, scheme: str, output: Path) -> None:
    """Write a screenshot of a page in a state."""
    context = browser.new_context(viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type]
    tab = context.new_page()
    tab.goto(f"file://{page}#{state}")
    tab.wait_for_selector("body[data-ready='']")
    tab.wait_for_function("new Promise(done => requestIdleCallback(() => requestAnimationFrame(() => done(true))))")
    tab.screenshot(path=str(output))
    context.close()
    print(f"wrote {output.relative_to(ROOT)}: {output.stat().st_size / 1000:.0f} kB")


def run(words: list[str], folder: Path) -> None:
    """Run a command in a folder."""
    subprocess.run(words, cwd=folder, check=True)


if __name__ == "__main__":
    main()

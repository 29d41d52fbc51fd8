"""The file name given to `export -o` and `pack -o` decides what is written, and a name of another format is refused."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.store.cli.conftest import PutImported
from tests.support import MESSAGER, messager
from tests.support.command_line import one_line

Run = Callable[..., Any]
LINE = {"ts": 1, "channel": "exps:e:agents:7:chat", "from_id": 3, "to_id": 7, "payload": "said"}


@pytest.fixture
def run(tmp_path: Path, put_imported: PutImported) -> Run:
    put_imported(tmp_path, [LINE], ("--exp", "e1"))
    return lambda *arguments, **options: messager(*arguments, cwd=tmp_path, **options)


@pytest.mark.parametrize(
    ("verb", "name", "suffix", "remedy"),
    [
        (
            "export",
            "x.json",
            ".json",
            ".mcap for MCAP, .parquet for Parquet, .csv for CSV",
        ),
        ("export", "x.jsonl.zst", ".zst", ".jsonl or .ndjson"),
        ("export", "x.pack.gz", ".pack", "`messager pack`"),
        ("pack", "x.zip", ".zip", ".pack"),
        ("pack", "x.tar.gz", ".tar", ".pack"),
        ("pack", "x.jsonl", ".jsonl", "`messager export`"),
    ],
)
def test_a_suffix_of_another_format_is_refused_before_the_store_is_opened_or_a_file_is_made(
    tmp_path: Path, verb: str, name: str, suffix: str, remedy: str
) -> None:
    done = messager(verb, "e1", "-o", name, "--store", "none.db", cwd=tmp_path)
    one_line(done, 2, f"'{suffix}'", remedy)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "form"), [("x.parquet.gz", "Parquet"), ("X.MCAP.GZ", "MCAP")])
def test_a_compressed_format_is_refused_under_a_name_that_compresses_it_again(
    tmp_path: Path, name: str, form: str
) -> None:
    done = messager("export", "e1", "-o", name, "--store", "none.db", cwd=tmp_path)
    one_line(done, 2, f"{form} is compressed already. Leave out .gz.")


def test_json_lines_are_written_under_their_suffixes_in_any_case_and_without_one(run: Run, tmp_path: Path) -> None:
    for name in ("x.ndjson", "RUN.JSONL.GZ", "x.gz", "x"):
        done = run("export", "e1", "-o", name)
        assert done.returncode == 0, done.stderr
        written = (tmp_path / name).read_bytes()
        plain = gzip.decompress(written) if name.lower().endswith(".gz") else written
        assert json.loads(plain.splitlines()[1])["payload"] == "said"
        assert run("import", name, "--exp", f"from {name}").returncode == 0


def test_packs_are_written_under_their_suffix_in_any_case_and_without_one(run: Run, tmp_path: Path) -> None:
    for name in ("x.pack", "X.PACK.GZ", "x"):
        assert run("pack", "e1", "-o", name).returncode == 0
        assert ((tmp_path / name).read_bytes()[:2] == b"\x1f\x8b") == name.lower().endswith(".gz")
        assert run("unpack", name, "--store", f"{name}.db").returncode == 0


@pytest.mark.parametrize("verb", ["export", "pack"])
def test_pipes_and_devices_have_no_format_by_their_name(run: Run, tmp_path: Path, verb: str) -> None:
    os.mkfifo(tmp_path / "run.fifo")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "run.fifo").read_text()), daemon=True)
    reader.start()
    done = run(verb, "e1", "-o", "run.fifo")
    reader.join()
    assert done.returncode == 0 and "said" in read[0]
    assert run(verb, "e1", "-o", "/dev/null").returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.parametrize("verb", ["export", "pack"])
def test_a_full_disk_is_an_output_that_is_unavailable(run: Run, verb: str) -> None:
    one_line(run(verb, "e1", "-o", "/dev/full"), 3, "cannot write /dev/full: No space left on device")


@pytest.mark.parametrize(
    ("verb", "redirection"),
    [("export", "-o >(cat > out; echo done > end); read < end"), ("pack", "-o /dev/stdout | cat > out")],
)
def test_a_pipe_that_the_shell_made_is_written_to(run: Run, tmp_path: Path, verb: str, redirection: str) -> None:
    os.mkfifo(tmp_path / "end")  # bash does not wait for what it substituted
    script = f'set -o pipefail; "$@" {redirection}'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *MESSAGER, verb, "e1"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "said" in (tmp_path / "out").read_text()

"""The key of a run: one for all who take part at the same time, on disk for this user only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from messager_store.errors import StoreError
from messager_store.lockstep.signing import VARIABLE, RunKey


def test_each_run_has_a_key_of_its_own_which_only_this_user_reads_while_it_lasts() -> None:
    first, second, late, next_run, other = RunKey("e"), RunKey("e"), RunKey("e"), RunKey("e"), RunKey("f")
    key = first.open()
    assert (
        stat.S_IMODE(os.stat(first.file).st_mode) == 0o600 and stat.S_IMODE(os.stat(first.file.parent).st_mode) == 0o700
    )
    assert second.open() == key
    first.close()
    assert late.open() == key != other.open()
    for one in (second, late, other):
        one.close()
    assert os.listdir(first.file.parent) == []
    assert next_run.open() != key
    next_run.close()


def test_a_key_that_a_killed_program_left_behind_is_replaced() -> None:
    killed, one = RunKey("e"), RunKey("e")
    key = killed.open()
    assert killed._descriptor is not None
    os.close(killed._descriptor)
    assert one.file.read_bytes().strip() == key != one.open()
    one.close()


def test_programs_elsewhere_use_a_copy_which_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = RunKey("e")
    key = here.open()
    copy = tmp_path / "key"
    copy.write_bytes(here.file.read_bytes())
    copy.chmod(0o400)
    monkeypatch.setenv(VARIABLE, str(copy))
    there = RunKey("e")
    assert there.open() == key
    there.close()
    assert copy.exists()
    here.close()


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("k" * 40, 0o640, "others may read or write the key of the replay, {}: make it yours, and `chmod 600` it"),
        ("k" * 31, 0o600, "{} has no key of 32 to 4,096 bytes: make one with `openssl rand -hex 32`"),
        ("k" * 4097, 0o600, "{} has no key of 32 to 4,096 bytes: make one with `openssl rand -hex 32`"),
        (None, 0o600, "the key of the replay, {}, cannot be used: No such file or directory. Name another file with"),
    ],
)
def test_a_key_that_is_none_or_is_no_secret_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, mode: int, why: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    monkeypatch.setenv(VARIABLE, str(file))
    with pytest.raises(StoreError) as refused:
        RunKey("e").open()
    assert str(refused.value).startswith(why.format(file)) and "\n" not in str(refused.value)


def test_a_pipe_in_place_of_the_key_is_refused_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "key")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "key"))
    with pytest.raises(StoreError, match="is not a file"):
        RunKey("e").open()

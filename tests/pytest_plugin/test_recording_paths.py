"""Recordings lie beside their tests, under names that are safe for files and distinct."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from messager_pytest.recording_paths import default_path, file_name, named_path, rerun

TEST_FILE = Path("/p/tests/test_shop.py")


def test_a_test_without_a_name_has_a_file_of_its_own_in_a_folder_of_its_module() -> None:
    assert default_path(TEST_FILE, "test_it") == Path("/p/tests/recordings/test_shop/test_it.jsonl")
    assert default_path(TEST_FILE, "TestSeller::test_it") == Path(
        "/p/tests/recordings/test_shop/TestSeller.test_it.jsonl"
    )


def test_a_name_lies_in_the_folder_of_recordings_or_relative_to_the_test_file() -> None:
    assert named_path(TEST_FILE, "shop.jsonl") == Path("/p/tests/recordings/shop.jsonl")
    assert named_path(TEST_FILE, "day/shop.jsonl") == Path("/p/tests/recordings/day/shop.jsonl")
    assert named_path(TEST_FILE, "./shop.jsonl") == Path("/p/tests/shop.jsonl")
    assert named_path(TEST_FILE, "../data/shop.jsonl") == Path("/p/data/shop.jsonl")
    assert named_path(TEST_FILE, Path("/data/shop.jsonl")) == Path("/data/shop.jsonl")


def test_names_of_parametrized_tests_are_readable_where_they_are_safe() -> None:
    assert file_name("test_it[1-apple]") == "test_it.1-apple"


@pytest.mark.parametrize(
    "unsafe", ["test_it[a/b]", "test_it[..]", "test_it[a:b]", "test_it[ä]", "test_it[" + "x" * 300]
)
def test_names_that_no_file_should_have_get_a_digest(unsafe: str) -> None:
    name = file_name(unsafe)
    assert "/" not in name and ":" not in name and len(name.encode()) < 250 and name.startswith("test_it.")


def test_different_tests_have_different_files_also_where_letter_case_does_not_count() -> None:
    tests = ["test_it", "test_it[a]", "test_it[A]", "test_it[a/b]", "test_it[a_b]", "test_it[a:b]", "test_it[é]"]
    tests += ["TestX::test_it", "test_it[" + "x" * 300 + "]", "test_it[" + "x" * 301 + "]"]
    assert len({file_name(test).lower() for test in tests}) == len(tests)


@pytest.mark.parametrize(
    ("started", "program"), [("/bin/pytest", "pytest"), ("/lib/pytest/__main__.py", "python -m pytest")]
)
def test_the_command_that_runs_a_test_again_is_quoted_for_a_shell_and_starts_pytest_as_it_was_started(
    started: str, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    command = rerun("tests/test_shop.py::test_it[a b]", Path("/p"), Path("/p/tests"), "-vv")
    assert command == f"{program} 'test_shop.py::test_it[a b]' -vv"

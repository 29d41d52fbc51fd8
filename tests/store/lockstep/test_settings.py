"""`MESSAGER_REPLAY`: an exp_id, or a file; each error is a line that says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from messager_store import Match
from messager_store.errors import StoreError
from messager_store.lockstep.settings import Settings


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "replay.json"
    monkeypatch.setenv("MESSAGER_REPLAY", str(made))
    return made


def test_the_variable_is_an_exp_id_and_the_store_is_that_of_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESSAGER_REPLAY", "exp-1")
    assert Settings.from_environment() == Settings("exp-1", store="messager.db")
    monkeypatch.setenv("MESSAGER_STORE", "runs.db")
    assert Settings.from_environment().store == "runs.db"


@pytest.mark.parametrize(
    ("value", "agents"), [("3", [3]), ("[3, 7]", [3, 7]), ('["a"]', ["a"]), ("a, b", ["a", "b"]), ('"a"', ["a"])]
)
def test_the_agents_of_a_process_are_a_json_list_or_joined_by_commas(
    monkeypatch: pytest.MonkeyPatch, value: str, agents: list[Any]
) -> None:
    monkeypatch.setenv("MESSAGER_REPLAY", "exp-1")
    monkeypatch.setenv("MESSAGER_AGENTS", value)
    assert Settings.from_environment().agents == agents


@pytest.mark.parametrize("value", ["[5", "[" * 100_000, "{}", "null", "5,", "[]", "[null]", "[[5]]"])
def test_agents_that_are_no_list_of_ids_are_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MESSAGER_REPLAY", "exp-1")
    monkeypatch.setenv("MESSAGER_AGENTS", value)
    with pytest.raises(StoreError, match=r"MESSAGER_AGENTS is .*: give a JSON list of agents, or ids joined by commas"):
        Settings.from_environment()


def test_a_file_has_the_experiment_the_match_the_patience_and_mappings(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_AGENTS", "9")
    monkeypatch.setenv("MESSAGER_STORE", "runs.db")
    data = {
        "experiment": "exp-1",
        "store": "other.db",
        "live": [3],
        "agents": [3],
        "match": {"ignore": ["id"], "tolerance": 0.5},
        "patience": 5,
        "on_timeout": "stop",
        "map": {"a": "b"},
        "report": "reports",
    }
    file.write_text(json.dumps(data))
    assert Settings.from_environment() == Settings(**{**data, "match": Match(ignore=["id"], tolerance=0.5)})


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (None, "cannot be read: .*Name a JSON file, or an exp_id"),
        ("{", "is not JSON: .*Correct the file"),
        ("[" * 100_000, "is not JSON: .*Correct the file"),
        ('{"experiment": "\\ud800"}', 'does not name an experiment: write {"experiment": "exp-1"}'),
        ('{"experiment": "e", "store": "a\\u0000"}', "store is .*: give a file name or a URL"),
        ('{"experiment": "e", "report": "\\udc80"}', "report is .*: give a folder"),
        ("[1]", 'does not name an experiment: write {"experiment": "exp-1"}'),
        ('{"experiment": 5}', 'does not name an experiment: write {"experiment": "exp-1"}'),
        ('{"experiment": "e", "patiense": 1}', "unknown field 'patiense'. The fields are agents, .*, store"),
        ('{"experiment": "e", "match": {"ignor": []}}', "match: .*ignor"),
        ('{"experiment": "e", "match": 5}', "match: "),
        ('{"experiment": "e", "patience": "long"}', "patience is 'long': give seconds, more than zero"),
        ('{"experiment": "e", "patience": 0}', "patience is 0: give seconds, more than zero"),
        ('{"experiment": "e", "patience": true}', "patience is True: give seconds, more than zero"),
        ('{"experiment": "e", "patience": 1' + 400 * "0" + "}", "patience is 10+: give seconds, more than zero"),
        ('{"experiment": "e", "on_timeout": "wait"}', "on_timeout is 'wait': give continue or stop"),
        ('{"experiment": "e", "live": "some"}', "live is 'some': give a list of agents, or \"all\""),
        ('{"experiment": "e", "agents": 5}', "agents is 5: give a list of agents"),
        ('{"experiment": "e", "map": ["a"]}', r"map is \['a'\]: give an object of channels"),
        ('{"experiment": "e", "map": {"a": 1}}', "map is .*: give an object of channels"),
        ('{"experiment": "e", "map": {"a": "\\ud800"}}', "map is .*: give an object of channels"),
        ('{"experiment": "e", "live": [null]}', r"live is \[None\]: give a list of agents, or \"all\""),
        ('{"experiment": "e", "store": 5}', "store is 5: give a file name or a URL"),
        ('{"experiment": "e", "report": []}', r"report is \[\]: give a folder"),
        ('{"experiment": "e", "report": ""}', r"report is '': give a folder"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line_with_the_remedy(file: Path, text: str | None, remedy: str) -> None:
    if text is not None:
        file.write_text(text)
    with pytest.raises(StoreError, match=remedy.replace("{", r"\{").replace("}", r"\}")) as refused:
        Settings.from_environment()
    assert str(refused.value).startswith(f"MESSAGER_REPLAY: {file}") and "\n" not in str(refused.value)

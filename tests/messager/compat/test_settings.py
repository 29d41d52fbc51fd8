"""Settings are stored without their secrets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, SecretStr

from messager.compat.settings import without_secrets


class Colour(Enum):
    RED = "red"


class Part(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")

    value: Any = None


def test_what_is_called_a_secret_is_left_out_and_what_only_sounds_like_one_stays() -> None:
    """tests/messager/test_credentials.py has all names."""
    for name in ("password", "openai_api_key", "accessToken", "sessionId"):
        assert without_secrets(Part(value={name: "hush", "kept": 1})) == {"value": {"kept": 1}}
        assert without_secrets(Part(**{name: "hush"})) == {"value": None}
    assert without_secrets({"max_tokens": 5, "key": 5}) == {"max_tokens": 5, "key": 5}


@dataclass
class Plain:
    token: str = "hush"
    name: str = "n"


def test_dataclasses_are_their_fields() -> None:
    assert without_secrets([Plain()]) == [{"name": "n"}]


def test_what_is_typed_as_a_secret_is_left_out_whatever_it_is_called() -> None:
    assert without_secrets(Part(value=[SecretStr("hush"), 1])) == {"value": [1]}
    assert without_secrets({"plain": SecretStr("hush")}) == {}


def test_urls_and_texts_lose_what_they_say_is_secret() -> None:
    given = {"base_url": "postgresql://u:hu@sh@h/d?sslmode=require", "text": "host=h password='hu sh' user=u"}
    kept = {"base_url": "postgresql://***@h/d?sslmode=require", "text": "host=h password=*** user=u"}
    assert without_secrets(given) == kept


def test_command_lines_lose_what_stands_behind_the_option_of_a_secret() -> None:
    args = ["run", "--api-key", "hush", "--password", "hush", "--max-tokens", "5", "password", "x"]
    assert without_secrets([]) == [] and without_secrets(["--password"]) == ["--password"]
    assert without_secrets(args) == [
        *("run", "--api-key", "***", "--password", "***", "--max-tokens", "5", "password", "x"),
    ]


def test_everything_else_is_what_json_can_hold() -> None:
    value = Part(
        value={
            1: (1.5, float("nan"), None, True),
            "class": Part,
            "function": test_dataclasses_are_their_fields,
            "lambda": lambda: "hush",
            "enum": Colour.RED,
            "uuid": UUID(int=0),
            "path": Path("a/b"),
            "object": object(),
            "bytes": b"hush",
            "set": {3},
        }
    )
    kept = without_secrets(value)
    assert json.loads(json.dumps(kept, allow_nan=False)) == kept and "hush" not in json.dumps(kept)
    assert kept["value"]["class"].endswith("test_settings.Part") and kept["value"]["enum"] == "red"
    assert kept["value"]["1"] == [1.5, "nan", None, True] and kept["value"]["path"] == "a/b"


def test_what_holds_itself_comes_to_an_end() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert json.dumps(without_secrets(circle)).count("[") < 100

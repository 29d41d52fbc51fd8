"""Settings are stored without their secrets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from messager.compat.settings import without_secrets


class Colour(Enum):
    RED = "red"


class Part(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")

    value: Any = None


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "redis_password",
        "PASSWD",
        "passphrase",
        "db_pwd",
        "api_key",
        "apikey",
        "API-KEY",
        "openai_api_key",
        "access_key",
        "secret_key",
        "client_secret",
        "private_key",
        "token",
        "access_token",
        "accessToken",
        "dsn",
        "credentials",
        "authorization",
        "cookie",
        "openai_key",
        "signing_key",
        "db_pass",
        "tokens",
        "bearer",
        "jwt",
        "proxy-authorization",
        "pg_dsn",
        "connection_string",
        "session_id",
        "sessionId",
    ],
)
def test_what_is_called_a_secret_is_left_out(name: str) -> None:
    assert without_secrets(Part(value={name: "hush", "kept": 1})) == {"value": {"kept": 1}}
    assert without_secrets(Part(**{name: "hush"})) == {"value": None}


@pytest.mark.parametrize("name", ["max_tokens", "key", "keyword", "author", "compass", "tokens_used", "username"])
def test_what_only_sounds_like_one_stays(name: str) -> None:
    assert without_secrets({name: 5}) == {name: 5}


@dataclass
class Plain:
    token: str = "hush"
    name: str = "n"


def test_dataclasses_are_their_fields() -> None:
    assert without_secrets([Plain()]) == [{"name": "n"}]


def test_what_is_typed_as_a_secret_is_left_out_whatever_it_is_called() -> None:
    assert without_secrets(Part(value=[SecretStr("hush"), 1])) == {"value": [1]}
    assert without_secrets({"plain": SecretStr("hush")}) == {}


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("redis://:hush@h:6379/0", "redis://***@h:6379/0"),
        ("postgresql://u:hu@sh@h/d?sslmode=require", "postgresql://***@h/d?sslmode=require"),
        ("https://h/v1?api_key=hush&x=1", "https://h/v1?api_key=***&x=1"),
        ("https://h/v1", "https://h/v1"),
        ("postgresql://u:hu sh@h/d", "postgresql://***@h/d"),
        ("//u:hush@h", "//***@h"),
        ("https://h/v1?access_token=hush&x=1", "https://h/v1?access_token=***&x=1"),
    ],
)
def test_urls_lose_their_passwords(url: str, kept: str) -> None:
    assert without_secrets({"base_url": url}) == {"base_url": kept}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("host=h user=u password=hush", "host=h user=u password=***"),
        ("host=h password='hu sh' user=u", "host=h password=*** user=u"),
        ("run --token=hush -v", "run --token=*** -v"),
        ("Authorization: Bearer hush", "Authorization: Bearer ***"),
        ('{"client_secret": "hush", "n": 1}', '{"client_secret": ***, "n": 1}'),
        ("count the tokens: 5 of them", "count the tokens: 5 of them"),
    ],
)
def test_texts_lose_what_they_say_is_secret(text: str, kept: str) -> None:
    assert without_secrets({"text": text}) == {"text": kept}


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
            "function": test_urls_lose_their_passwords,
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

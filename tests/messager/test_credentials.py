"""Credentials are recognised by their names and masked everywhere; values with similar names are not masked."""

from __future__ import annotations

from hypothesis import given, strategies

from messager.credentials import command_line, find_credentials, is_secret, mask_json, mask_text

SECRETS = [
    *("password", "passwd", "passphrase", "pwd", "pw", "user-pwd", "secret", "client_secret", "token"),
    *("auth-token", "accessToken", "api-key", "apikey", "OPENAI_API_KEY", "API_KEY_PROD", "access-key"),
    *("aws_secret_access_key", "AWSAccessKeyId", "private-key", "signing_key", "jwt", "bearer", "dsn"),
    *("SENTRY_DSN", "pg_dsn", "auth", "basic-auth", "authorization", "proxy-authorization", "cookie"),
    *("credential", "credentials", "creds", "PGPASSWORD", "MYSQL_PWD", "db_pass", "userpass", "password1"),
    *("passwords", "session_id", "connection_string", "otp", "api_keys", "secretValue", "password_hash"),
    *("tokens", "use_auth_token", "auth.password", "hf-token"),
]
HARMLESS = [
    *("tokenizer", "max-tokens", "max_new_tokens", "num-tokens", "n_tokens", "prompt_tokens"),
    *("tokens_used", "token-limit", "tokens-per-second", "eos-token", "add_special_tokens", "author"),
    *("authority", "passes", "n-passes", "first-pass", "compass", "bypass", "passenger", "bearing"),
    *("bearings", "secretary", "keyword", "key", "keyboard", "sort-key", "sort_keys", "primary_key"),
    *("public-key", "monkey", "username", "password-file", "token-url", "secret-name", "api-key-env"),
    *("no-password", "ask-pass", "password-stdin", "seed", "name", "dsl", "jwst", "session"),
]


def test_what_stands_behind_the_name_of_a_secret_is_masked_in_every_form() -> None:
    for name in SECRETS:
        _is_masked_in_every_form(name)


def _is_masked_in_every_form(name: str) -> None:
    assert is_secret(name)
    assert command_line(["run", f"--{name}", "hush hush", "x"]) == ["run", f"--{name}", "***", "x"]
    assert command_line(["run", f"--{name}=hush hush", f"{name}=hush hush"]) == ["run", f"--{name}=***", f"{name}=***"]
    assert mask_json({name: "hush", "n": [{name: ["hush", None]}]}) == {name: "***", "n": [{name: ["***", None]}]}
    texts = [
        f"run --{name} hush",
        f"x {name}=hush",
        f"{name}: hush",
        f'{{"{name}": "hush hush"}}',
        f"http://h/?{name}=hush",
    ]
    texts += [f"{name} = 'hush hush'", f'os["{name}"] = "hush hush"', f'run(["--{name}", "hush hush"])']
    texts += [f'{{\\"{name}\\": \\"hush hush\\"}}', f"http://h/?x=1&{name}=hush"]
    for text in texts:
        masked = mask_text(text)
        assert "hush" not in masked and "***" in masked, (text, masked)
        assert mask_text(masked) == masked


def test_what_stands_behind_a_harmless_name_stays() -> None:
    for name in HARMLESS:
        assert not is_secret(name)
        arguments = ["run", f"--{name}", "3", f"--{name}=4096", f"{name}=4096", f"run --{name} 3", f"{name}: 3"]
        assert command_line(arguments) == arguments
        assert mask_json({name: "3", "list": [{name: 3}]}) == {name: "3", "list": [{name: 3}]}


def test_a_text_is_masked_where_its_credentials_are_and_only_once() -> None:
    for text, kept in [
        ("redis://user:hush@h:1/0", "redis://***@h:1/0"),
        ("redis://:hu/sh@h", "redis://***@h"),
        ("redis://u:hu@sh/hush@h/0", "redis://***@h/0"),
        ("redis://u:hu@ sh@h", "redis://***@h"),
        ("redis://hush@h", "redis://***@h"),
        ("redis://u:hu sh@h", "redis://***@h"),
        ("redis://u:hu?sh@h", "redis://***"),
        ("https://h/?password=hu@sh", "https://***"),
        ("postgresql://u:hush@h/d?sslmode=require", "postgresql://***@h/d?sslmode=require"),
        ("https://h/v1?key=hush&X-Amz-Signature=hush&x=1", "https://h/v1?key=***&X-Amz-Signature=***&x=1"),
        ("Authorization: Bearer hush", "Authorization: Bearer ***"),
        ("authorization: hush", "authorization: ***"),
        ("Proxy-Authorization: Basic aHVzaA==", "Proxy-Authorization: Basic ***"),
        ("Authorization: Digest username=u, response=hush", "Authorization: Digest ***"),
        ("Cookie: a=hush; b=hush", "Cookie: ***"),
        ("X-Api-Key: hush", "X-Api-Key: ***"),
        ('{"Authorization": "Bearer hush hush", "n": 1}', '{"Authorization": "Bearer ***", "n": 1}'),
        ("curl -H 'Authorization: Bearer hush' http://h", "curl -H 'Authorization: Bearer ***' http://h"),
        ("it said Bearer hush, twice", "it said Bearer ***, twice"),
        ("env=API_KEY=hush", "env=API_KEY=***"),
        ("export TOKEN=hush; run", "export TOKEN=*** run"),
    ]:
        assert mask_text(text) == kept
        assert mask_text(kept) == kept
        assert command_line(["run", text])[1] == kept


def test_a_text_without_credentials_stays() -> None:
    for text in [
        "redis://h:6379/0",
        "https://h/v1?x=1&page=2",
        "count the tokens: 5 of them",
        "--tokens 4096",
        "a@b?c=d",
        "/path//to/a file.py",
        "12:30:00 the author: Ann",
        "git@host:repo",
        "exps:*",
    ]:
        assert mask_text(text) == text and command_line(["run", text]) == ["run", text]


def test_a_credential_behind_a_flag_that_takes_no_value_is_masked_too() -> None:
    given = ["run", "--no-password", "--password", "--token", "hush", "--tokens", "4096"]
    assert command_line(given) == ["run", "--no-password", "--password", "***", "***", "--tokens", "4096"]


def test_places_of_credentials_are_named_and_masked_ones_are_none() -> None:
    meta = {"command": ["run", "--jwt", "hush"], "config": {"url": "redis://:hush@h", "n": 1}, "dsn": "hush"}
    assert list(find_credentials(meta)) == ["command[2]", "config.url", "dsn"]
    assert list(find_credentials(mask_json(meta))) == []


FRAGMENTS = [
    *("--token", "--password", "hush", "=", ":", " ", '"', "'", "\\", "//", "@", "?", "&", "#", "***", "Bearer ", ","),
    *(
        "authorization",
        "cookie",
        "key",
        "api_key",
        "redis://",
        "u:p@h",
        "\n",
        "[",
        "]",
        "-",
        "digest ",
        "http://h/",
        "5",
    ),
]


@given(strategies.lists(strategies.lists(strategies.sampled_from(FRAGMENTS), max_size=12).map("".join), max_size=4))
def test_what_is_masked_is_masked_no_further(arguments: list[str]) -> None:
    masked = command_line(arguments)
    assert command_line(masked) == masked and len(masked) == len(arguments)
    assert mask_text("".join(masked)) == mask_text(mask_text("".join(masked)))


def test_a_long_hostile_text_is_masked_in_proportion_to_its_length() -> None:
    for text in ("/" * 100_000, "//a:" * 20_000, 'password="' * 10_000, "-" * 100_000, "a" * 100_000, "a= " * 30_000):
        assert isinstance(mask_text(text), str)

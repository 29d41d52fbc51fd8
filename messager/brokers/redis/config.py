"""Configuration of one Redis server, in the form of AgentSociety's `RedisConfig` (1.3)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator


class RedisConfig(BaseModel):
    """Address and credentials of a Redis server; `timeout` is in seconds.

    Raises `ValueError` for a `server` that is a URL.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # a URL may hold a password

    server: str = Field(...)
    port: int = Field(default=6379, ge=0, le=65535)
    password: str | None = Field(default=None, repr=False)
    db: int = Field(default=0)
    timeout: float = Field(default=60, ge=0)

    @field_validator("server")
    @classmethod
    def _is_no_url(cls, server: str) -> str:
        return checked_host(server)


def checked_host(server: str) -> str:
    """Return the `server` of a configuration, which may be AgentSociety's own. Raises `ValueError` for a URL."""
    if "://" in server:
        raise ValueError(
            "server is the name of a host, such as localhost, and not a URL: "
            "`open_broker(url)` of messager makes a broker of one, which a Messager accepts as well"
        )
    return server

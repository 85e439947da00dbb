"""Hosts that a user has already, as settings name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tradewind.deployer.ssh_target import SshSettings, parse_host


class Host(BaseModel):
    """One host; as a text it is ``host``, ``user@host`` or ``user@host:port``; an alias of ~/.ssh/config will do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(min_length=1, description="Its name or address, or an alias of ~/.ssh/config")
    user: str = Field("", description="The login; empty for what ssh takes by itself")
    port: int | None = Field(None, ge=1, le=65535, description="The port; without it what ssh takes by itself")
    identity: str = Field("", description="The file with the private key; empty for the agent's and the user's own")
    known_hosts: str = Field("", description="The file with its host key; empty for the user's own")
    jump: str = Field("", description="A host to go through (user@host:port), or several with commas")
    shared: bool = Field(False, description="Several runs may use it at the same time")

    @model_validator(mode="before")
    @classmethod
    def _text(cls, given: Any) -> Any:
        if isinstance(given, str):
            user, port, host = parse_host(given)
            return {"host": host, "user": user, "port": port}
        if isinstance(given, Mapping) and isinstance(given.get("host"), str):
            user, port, host = parse_host(given["host"])
            return {**({"user": user} if user else {}), **({"port": port} if port else {}), **given, "host": host}
        return given

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(core_schema), {"type": "string", "minLength": 1}]}

    @property
    def name(self) -> str:
        """What tells it from the others: two logins of one machine are one host, two ports are two."""
        return f"{self.host}:{self.port}" if self.port else self.host

    def facts(self, given: SshSettings | None = None) -> dict[str, Any]:
        """How to reach it, in the keys of `SshTarget`; what it does not say is as ``given``."""
        own = self.model_dump(exclude={"host", "shared"})
        return {**(given.facts() if given else {}), **{key: value for key, value in own.items() if value}}

"""Targets of SSH: a machine with login, port, keys and hops, as settings and handles have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tradewind.problem import Machine


class SshSettings(BaseModel):
    """How machines are reached by SSH, for settings of parts that do so; what is left out is as ``ssh`` has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: str = Field("", description="The login; empty for what ssh takes by itself")
    port: int | None = Field(None, ge=1, le=65535, description="The port; without it what ssh takes by itself")
    identity: str = Field("", description="The file with the private key; empty for the agent's and the user's own")
    known_hosts: str = Field("", description="The file with the host keys; empty for the user's own")
    jump: str = Field("", description="A host to go through (user@host:port), or several with commas")
    connect_seconds: float = Field(10.0, gt=0, le=600, description="How long opening a connection may take")

    def facts(self) -> dict[str, Any]:
        """The settings that were given, in the keys of `SshTarget`."""
        return {
            key: value
            for key, value in self.model_dump().items()
            if key in SshTarget.__dataclass_fields__ and value not in ("", None)
        }


@dataclass(frozen=True, slots=True)
class SshTarget:
    """A machine with what SSH needs to reach it.

    Attributes:
        host: Its name or address, or an alias of ``~/.ssh/config``.
        user: The login, or empty for what ``ssh`` takes by itself.
        port: The port, or None for what ``ssh`` takes by itself.
        identity: The file with the private key, or empty.
        known_hosts: The file with its host key, or empty for the user's own. A provisioner that made the machine knows
            its key, or makes a file of its own for each machine.
        accept_new: Take the host key that is offered the first time; only for machines that were just made.
        jump: A host to go through, as ``ssh -J`` takes it, or empty. The same key and known hosts are used for it.
    """

    host: str
    user: str = ""
    port: int | None = None
    identity: str = ""
    known_hosts: str = ""
    accept_new: bool = False
    jump: str = ""

    @classmethod
    def of(cls, machine: Machine, given: Mapping[str, Any] | None = None) -> SshTarget:
        """The target of a machine: what its provisioner says in ``data["ssh"]``, else what the user gave."""
        facts = {"host": machine.address, **(given or {}), **machine.data.get("ssh", {})}
        return cls(**{key: value for key, value in facts.items() if key in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document, for handles; ``SshTarget(**document)`` reads it."""
        return asdict(self)


def parse_host(text: str) -> tuple[str, int | None, str]:
    """Read ``user@host:port``, of which only the host is needed; an IPv6 address with a port stands in brackets.

    Returns:
        The user or an empty text, the port or None, and the host.

    Raises:
        ValueError: It is not of that form.
    """
    user, _, rest = text.rpartition("@")
    host, port = rest, ""
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    words_only = not any(char.isspace() or char in "\"'`$\\;&|<>(){}," or ord(char) < 32 for char in text)
    if not host or host.startswith("-") or user.startswith("-") or not words_only or (port and not port.isdigit()):
        raise ValueError(f"{text!r} is no host: write host, user@host or user@host:port")
    if port and not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} has no port between 1 and 65535")
    return user, int(port) if port else None, host


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
        """Name that sets a host apart: two logins of one machine are one host, two ports are two."""
        return f"{self.host}:{self.port}" if self.port else self.host

    def facts(self, given: SshSettings | None = None) -> dict[str, Any]:
        """The facts for reaching it, in the keys of `SshTarget`; those that it does not have are as ``given``."""
        own = self.model_dump(exclude={"host", "shared"})
        return {**(given.facts() if given else {}), **{key: value for key, value in own.items() if value}}

"""Targets of SSH: a machine with login, port, keys and hops, as settings and handles have it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tradewind.problem import Machine


def parse_host(text: str) -> tuple[str, int | None, str]:
    """Read ``user@host:port``, of which only the host is needed; an IPv6 address with a port stands in brackets.

    ``ssh://`` may stand before it, as before the hosts of other programs.

    Returns:
        The user or an empty text, the port or None, and the host.

    Raises:
        ValueError: It is not of that form.
    """
    rest = text.strip() if "://" not in text else _without_scheme(text.strip())
    user, at, rest = rest.rpartition("@")
    if ":" in user:
        # The text is not repeated: it has the password.
        raise ValueError(f"a host with a password in it ({rest}): leave it out, ssh takes keys and agents")
    found = _HOST.fullmatch(rest)
    unnamed = at and not user.strip("@")
    if found is None or user.startswith("-") or unnamed or not _is_plain(user):
        raise ValueError(f"{text!r} is no host: write host, user@host, user@host:port or ssh://user@host:port")
    port = found["port"] or found["own_port"]
    if port and not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} has no port between 1 and 65535")
    return user, int(port) if port else None, found["bracketed"] or found["host"] or found["address"]


_PLAIN = r"[^\s\"'`$\\;&|<>(){},\x00-\x1f/@:\[\]*?#~!]"
_HOST = re.compile(
    # A lone IPv6 address has colons of its own, and so no port.
    rf"\[(?P<bracketed>[0-9A-Fa-f:.]+(?:%{_PLAIN}+)?)\](?::(?P<port>[0-9]*))?"
    rf"|(?!-)(?P<host>{_PLAIN}+)(?::(?P<own_port>[0-9]*))?"
    rf"|(?P<address>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%{_PLAIN}+)?)"
)


def _is_plain(word: str) -> bool:
    return re.fullmatch(f"(?:{_PLAIN}|@)*", word) is not None


def _without_scheme(text: str) -> str:
    """The text behind ``ssh://``; refuses other schemes, and paths, which a host has none of."""
    scheme, _, rest = text.partition("://")
    if scheme.lower() != "ssh":
        raise ValueError(f"{scheme}:// is no way to a host by SSH: write ssh://user@host:port or user@host:port")
    user, at, host = rest.rpartition("@")
    host = host.removesuffix("/")
    if "/" in host and ":" not in user:
        raise ValueError(f"behind ssh:// there is a path in {host!r}, and a host has none: write ssh://user@host:port")
    return f"{unquote(user)}{at}{host}"


def _checked_host(text: str) -> str:
    """Refuse a text that is no host when it is read; an empty one stays."""
    if text:
        parse_host(text)
    return text


def checked_hops(text: str) -> str:
    """Refuse a text that is no list of hosts, with commas between them; an empty one stays.

    Raises:
        ValueError: One of them is no host.
    """
    for hop in filter(None, text.split(",")):
        parse_host(hop)
    return text


HostText = Annotated[str, AfterValidator(_checked_host)]
"""A host as `parse_host` reads it, or an empty text."""

HopsText = Annotated[str, AfterValidator(checked_hops)]
"""Hosts to go through, with commas between them, each as `parse_host` reads it; or an empty text."""


class SshSettings(BaseModel):
    """Settings by which machines are reached over SSH, for parts that do so; what is left out is as ``ssh`` has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: str = Field("", description="The login; empty for what ssh takes by itself")
    port: int | None = Field(None, ge=1, le=65535, description="The port; without it what ssh takes by itself")
    identity: str = Field("", description="The file with the private key; empty for the agent's and the user's own")
    known_hosts: str = Field("", description="The file with the host keys; empty for the user's own")
    jump: HopsText = Field("", description="A host to go through (user@host:port), or several with commas")
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

    @classmethod
    def named(cls, text: str, given: SshSettings) -> SshTarget:
        """The target of a host that a setting names, as `parse_host` reads it; what it leaves out is as ``given``."""
        user, port, host = parse_host(text)
        own = {"user": user, "port": port}
        return cls(host=host, **{**given.facts(), **{key: value for key, value in own.items() if value}})

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document, for handles; ``SshTarget(**document)`` reads it."""
        return asdict(self)


class Host(BaseModel):
    """One host; as a text ``host``, ``user@host:port`` or ``ssh://user@host:port``, or an alias of ~/.ssh/config."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(min_length=1, description="Its name or address, or an alias of ~/.ssh/config")
    user: str = Field("", description="The login; empty for what ssh takes by itself")
    port: int | None = Field(None, ge=1, le=65535, description="The port; without it what ssh takes by itself")
    identity: str = Field("", description="The file with the private key; empty for the agent's and the user's own")
    known_hosts: str = Field("", description="The file with its host key; empty for the user's own")
    jump: HopsText = Field("", description="A host to go through (user@host:port), or several with commas")
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
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return f"{host}:{self.port}" if self.port else host

    def facts(self, given: SshSettings | None = None) -> dict[str, Any]:
        """The facts for reaching it, in the keys of `SshTarget`; those that it does not have are as ``given``."""
        own = self.model_dump(exclude={"host", "shared"})
        return {**(given.facts() if given else {}), **{key: value for key, value in own.items() if value}}

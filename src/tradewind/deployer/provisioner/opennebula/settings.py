"""Settings of the OpenNebula provisioner, and where its credentials are looked for."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field, field_validator

from tradewind import plugins
from tradewind.deployer.environment import resolve_secrets
from tradewind.deployer.ssh_target import HopsText
from tradewind.errors import CredentialsError, DeployError, InputError
from tradewind.utils.paths import expand
from tradewind.utils.units import parse_memory

_SET_CONTEXT = {
    "SSH_PUBLIC_KEY": "use the setting public_key",
    **dict.fromkeys(("START_SCRIPT", "START_SCRIPT_BASE64"), "use the setting start_script"),
}
"""Context variables that Tradewind sets itself, and what to do instead of giving them."""

_ENDPOINT = "http://localhost:2633/RPC2"


class OpenNebulaSettings(plugins.Settings):
    """Settings of the OpenNebula provisioner."""

    template: str = Field(description="Name or number of the machine template; names may be of other users, too")
    endpoint: str = Field(
        "",
        pattern=r"^$|^https?://",
        description="Address of oned's XML-RPC interface; without it that of ONE_XMLRPC, or localhost's",
    )
    auth: str = Field(
        "",
        pattern=r"^$|^(env|file|keyring):.",
        description="Where user:password (or user:token) stands, as env:NAME, file:PATH or keyring:SERVICE/NAME; "
        "without it the file that ONE_AUTH names, or ~/.one/one_auth, as for OpenNebula's own tools",
    )
    providers: tuple[str, ...] = Field(("opennebula",), min_length=1, description="Providers whose offers it makes")
    cluster: str = Field(
        "", pattern=r'^[^"\\\n]*$', description="Name or number of the cluster of hosts; any without it"
    )
    network: str = Field("", description="Name or number of the virtual network, instead of the template's")
    gpu: str = Field(
        "",
        pattern=r"^(|template|[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}(:[0-9A-Fa-f]{4})?)$",
        description="What one GPU of an offer is: the PCI device VENDOR:DEVICE or VENDOR:DEVICE:CLASS, in hexadecimal, "
        "as `onehost show` lists it, or `template` where the template brings them; empty: offers with GPUs are refused",
    )
    disk: str = Field("", description="Size of the first disk, such as 20GiB, instead of the image's")
    user: str = Field("root", description="Login for SSH")
    port: int = Field(22, ge=1, le=65535, description="Port of the SSH server")
    identity: str = Field("", description="File with the private key; without it what ssh takes by itself")
    public_key: str = Field("", description="File with the public key that is put on the machines; identity + .pub")
    jump: HopsText = Field("", description="A host to go through, as ssh -J takes it")
    start_script: str = Field("", description="File with a script that the machines run as root when they boot")
    context: dict[str, str] = Field(default_factory=dict, description="Further context variables of the machines")
    shared: str = Field("", description="A folder that all machines of the template see, where there is one")
    ready: Literal["ssh", "running"] = Field(
        "ssh", description="A machine is ready when its SSH server answers, or when OpenNebula says that it runs"
    )
    terminate: bool = Field(
        True, description="Have OpenNebula terminate the machines when their lease ends (SCHED_ACTION)"
    )
    queue_seconds: float = Field(
        900.0, gt=0, description="Seconds that machines may wait for a host until there counts as no capacity"
    )
    timeout: float = Field(30.0, gt=0, le=600, description="Seconds that OpenNebula may take for an answer")
    interval: float = Field(2.0, gt=0, le=60, description="Seconds between two looks at the machines")

    @field_validator("disk")
    @classmethod
    def _a_size(cls, given: str) -> str:
        if given:
            try:
                parse_memory(given)
            except InputError as error:
                raise ValueError(str(error)) from None
        return given

    @field_validator("context")
    @classmethod
    def _not_ours(cls, given: dict[str, str]) -> dict[str, str]:
        for name, value in given.items():
            plain = name.upper()
            if why := _SET_CONTEXT.get(plain):
                raise ValueError(f"the context variable {name} is set by Tradewind itself: {why}")
            if plain == "NETWORK" and value.upper() != "YES":
                raise ValueError(
                    f"the context variable {name}: {value!r} leaves machines without a network: leave it out"
                )
        return given

    @field_validator("identity")
    @classmethod
    def _somebodys(cls, given: str) -> str:
        expand(given)  # it must not fail only when there are machines, which tell of it
        return given

    @property
    def disk_bytes(self) -> int | None:
        """The size of the first disk, or None."""
        return parse_memory(self.disk) if self.disk else None

    def address(self) -> str:
        """The endpoint that holds."""
        return self.endpoint or os.environ.get("ONE_XMLRPC") or _ENDPOINT

    def session(self) -> str:
        """The credentials, read now.

        Raises:
            CredentialsError: There are none.
        """
        place = self.auth or f"file:{os.environ.get('ONE_AUTH') or '~/.one/one_auth'}"
        try:
            text = resolve_secrets({"auth": place})["auth"].strip()
        except DeployError as error:
            raise CredentialsError(
                f"there are no credentials for OpenNebula: {error.message}",
                hint="set auth to file:PATH or env:NAME of a text user:password",
            ) from None
        if ":" not in text:
            raise CredentialsError(f"{place} does not hold a text user:password for OpenNebula")
        return text

    def key(self) -> str:
        """The public key that is put on the machines, or empty.

        Raises:
            DeployError: The file that was named cannot be read.
        """
        if self.public_key:
            return read_text_setting(self.public_key, "public_key").strip()
        beside = expand(self.identity + ".pub")
        return read_text_setting(str(beside), "identity").strip() if self.identity and beside.is_file() else ""


def find_credentials() -> None:
    """See that there are credentials where OpenNebula's own tools look for them.

    Raises:
        CredentialsError: There are none.
    """
    OpenNebulaSettings(template="any").session()


def read_text_setting(path: str, setting: str) -> str:
    """The text of a file that a setting names; an empty one without a name.

    Raises:
        DeployError: It cannot be read.
    """
    if not path:
        return ""
    try:
        return expand(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DeployError(f"opennebula: {setting}: {path} cannot be read: {why}", retryable=False) from None

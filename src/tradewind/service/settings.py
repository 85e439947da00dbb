"""Settings of the server: from flags, the environment, a configuration file, and defaults; in this order."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from tradewind.deployer.environment import resolve_secrets
from tradewind.errors import SpecError
from tradewind.problem.job_spec.validation_errors import spec_errors
from tradewind.problem.yaml_source import YamlSource, read_source
from tradewind.utils.paths import expand


def _reference(text: str) -> str:
    if text and not text.startswith(("env:", "file:", "keyring:")):
        # What stands here may be the secret itself: it is not repeated.
        words = {"message": "this is no reference to a secret", "hint": "write env:NAME, file:PATH or keyring:NAME"}
        raise PydanticCustomError("tradewind", "{message}", words)
    return text


def _entering(given: dict[str, str]) -> dict[str, str]:
    if "password" in given:
        _reference(given["password"])
    return given


Secret = Annotated[str, AfterValidator(_reference)]
"""A reference to a secret; never the secret."""


Entering = Annotated[
    dict[Literal["user", "password", "endpoint", "identity", "known_hosts"], str], AfterValidator(_entering)
]
"""Credentials of a location; the password is a reference."""


class ServiceSettings(BaseModel):
    """The settings of a server: those of ``tradewind serve``, of its configuration file, and of the environment.

    Attributes:
        host: The address to listen on.
        port: The port; 0 takes a free one.
        public_url: Address for users, where a proxy stands before the server; empty without one.
        database: Address of the store; without it that of ``TRADEWIND_STORE``, or the user's own.
        behind_proxy: True where ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are believed.
        proxies: Addresses and networks of the proxies whose headers are believed.
        tls_certificate: PEM file of the certificate chain; plain HTTP without it.
        tls_key: PEM file of its key.
        session_hours: Hours after which a session that nobody uses ends.
        session_days: Days after which every session ends, used or not.
        audit_days: Days that a line of the audit log is kept.
        max_body_mib: MiB that the body of a request to the server may have at most.
        runs: Requests that this server carries out at a time; 0 makes a server that only answers.
        processes: Processes of this server that answer calls, at one port; its worker is one more.
        lease_seconds: Seconds after which another server takes over what a silent one carried out.
        stop_seconds: Seconds that open calls and the worker have to end in, when the server stops.
        log_format: ``text`` or ``json``, one line an event, on standard error.
        log_level: The least severe lines that are written: ``debug``, ``info``, ``warning`` or ``error``.
        streams: Event streams that a process may have open at a time; beyond it, 503.
        streams_per_user: Event streams that one user may have open in a process; beyond it, 429.
        stream_minutes: Minutes after which a stream ends, so that its client comes again and says who it is.
        beat_seconds: Seconds of silence after which a stream says that it is still there.
        event_seconds: Seconds between two looks for new events.
        upload_mib: MiB that the files which a tenant hands in with forms may take together.
        free_mib: MiB that the disks of runs and of the database must have left for the server to count as ready.
        metrics_token: Reference to the token that ``/metrics`` asks for; without one it answers this machine only.
        link_days: Days after which a link to results leads nowhere, unless its maker says otherwise.
        secret_key: Reference to the key that secrets of users are sealed with; all servers of a database need the same
            one. Without this setting, the key is a file in the data folder.
        private_addresses: True where webhooks and results of users may go to addresses inside the server's network.
        results_places: Places of the administrator's that results of users may go to, by address, each with how it is
            entered (``user``, ``password``, ``endpoint``, ``identity``, ``known_hosts``; the password is a reference);
            ``{user}`` and ``{tenant}`` in an address are those of whoever sends results there.
        own_places: True where users may name places of their own.
        mail_from: The sender of e-mails; none are sent without it and ``smtp_host``.
        smtp_host: The server that e-mails are handed to.
        smtp_port: Port of that server.
        smtp_security: ``starttls``, ``tls`` (from the start), or ``none``.
        smtp_user: The login there; empty for none.
        smtp_password: Reference to its password: ``env:NAME`` or ``file:PATH``.
        smtp_authorities: PEM file of the authorities that its certificate is checked by; the system's without it.
        explore: True where the first proposal may be one to learn from; false for always the best
            known.
        shared_history: True where proposals for an application of all tenants learn from the runs of all of them.
        user: The user of the system that a server which is started as root becomes; without it ``tradewind``, or else
            ``nobody``.
        allow_root: True where a server that is started as root stays root, and programs of users with it.
        user_hooks: True where requests and applications of ordinary users may bring hooks, which run on the server.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(default=8765, ge=0, le=65535, description="The port; 0 takes a free one.")
    public_url: str = Field(default="", description="What users type to come here, where a proxy stands before it.")
    database: str = Field(default="", description="Address of the store; else TRADEWIND_STORE, or the user's own.")
    behind_proxy: bool = Field(default=False, description="Believe X-Forwarded-For and X-Forwarded-Proto.")
    proxies: str = Field(default="127.0.0.1,::1", description="Addresses and networks of proxies to believe.")
    tls_certificate: Path | None = Field(default=None, description="PEM file of the certificate chain.")
    tls_key: Path | None = Field(default=None, description="PEM file of its key.")
    session_hours: float = Field(default=12.0, gt=0, description="Hours after which an unused session ends.")
    session_days: float = Field(default=30.0, gt=0, description="Days after which every session ends, used or not.")
    audit_days: float = Field(default=400.0, gt=0, description="Days that a line of the audit log is kept.")
    max_body_mib: float = Field(default=16.0, gt=0, description="MiB that the body of a call may have at most.")
    runs: int = Field(default=4, ge=0, description="Requests carried out at a time; 0: this server only answers.")
    processes: int = Field(default=1, ge=1, le=64, description="Processes that answer calls, at one port.")
    lease_seconds: float = Field(default=15.0, gt=0, description="Silence after which another server takes over.")
    stop_seconds: float = Field(default=10.0, gt=0, description="Time for open calls and the worker to end in, s.")
    log_format: Literal["text", "json"] = Field(default="text", description="How a line of the log is written.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="What is logged.")
    streams: int = Field(default=5000, ge=0, description="Event streams open at a time in a process; beyond it, 503.")
    streams_per_user: int = Field(default=100, ge=1, description="The same for one user; beyond it, 429.")
    stream_minutes: float = Field(default=15.0, gt=0, description="Minutes after which a stream's client comes again.")
    beat_seconds: float = Field(default=15.0, gt=0, description="Silence after which a stream says that it is there.")
    event_seconds: float = Field(default=0.25, gt=0, description="Seconds between two looks for new events.")
    upload_mib: float = Field(default=256.0, gt=0, description="MiB that a tenant's handed-in files may take.")
    free_mib: float = Field(default=256.0, ge=0, description="MiB that disks must have left to count as ready.")
    metrics_token: Secret = Field(
        default="", description="Reference to the token for /metrics; else this machine only."
    )
    link_days: float = Field(default=30.0, gt=0, le=3650, description="Days that a link to results leads anywhere.")
    secret_key: Secret = Field(default="", description="Reference to the key that users' secrets are sealed with.")
    private_addresses: bool = Field(default=False, description="Webhooks and results may go to addresses inside.")
    results_places: dict[str, Entering] = Field(default={}, description="Places that users' results may go to.")
    own_places: bool = Field(default=True, description="Users may name places of their own for their results.")
    mail_from: str = Field(default="", max_length=254, description="The sender of e-mails; none are sent without.")
    smtp_host: str = Field(default="", description="The server that e-mails are handed to.")
    smtp_port: int = Field(default=587, ge=1, le=65535, description="Its port.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(default="starttls", description="TLS on that way.")
    smtp_user: str = Field(default="", description="The login there; empty for none.")
    smtp_password: Secret = Field(default="", description="Reference to its password: env:NAME or file:PATH.")
    smtp_authorities: Path | None = Field(default=None, description="PEM file of authorities for its certificate.")
    explore: bool = Field(default=True, description="The first proposal may be one to learn from; else the best known.")
    shared_history: bool = Field(default=False, description="Proposals learn from other tenants' runs, too.")
    user: str = Field(default="", max_length=100, description="The user that a server started as root becomes.")
    allow_root: bool = Field(default=False, description="Stay root, if started as root, as users' programs then do.")
    user_hooks: bool = Field(default=False, description="Ordinary users may bring hooks, which run on the server.")


ENVIRONMENT_PREFIX = "TRADEWIND_SERVICE_"
"""The environment's variables: ``TRADEWIND_SERVICE_PORT`` is the setting ``port``."""

CONFIGURATION_VARIABLE = f"{ENVIRONMENT_PREFIX}CONFIG"
"""The environment's variable that names the configuration file, where no flag does."""

_COMMAND_LINE = "the command line"


def read_settings(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> ServiceSettings:
    """Read the settings of a server.

    Args:
        flags: Flags of the command line, by name.
        environment: Variables of the environment; those that do not begin with `ENVIRONMENT_PREFIX` are left alone.
        file: A YAML file, or None.

    Raises:
        SpecError: A setting is not known or wrong; the error says where it stands.
    """
    source = YamlSource({}, "") if file is None else _read_file(file)
    document = dict(source.document)
    if file is not None:
        _lead_from(file.absolute().parent, document)
    places: dict[str, tuple[str, int | None]] = {
        str(key): (source.file, source.lines.get((key,))) for key in source.document
    }
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable != CONFIGURATION_VARIABLE:
            key = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            document[key], places[key] = _flag_value(text), (f"the environment, {variable}", None)
    for key, value in flags.items():
        document[key], places[key] = value, (_COMMAND_LINE, None)
    try:
        return ServiceSettings.model_validate(document)
    except ValidationError as error:
        problem = spec_errors(error, ServiceSettings, YamlSource(document, ""))[0]
        location = error.errors()[0]["loc"]
        place, line = places.get(str(location[0]), ("", None)) if location else ("", None)
        raise SpecError(problem.message, hint=problem.hint, file=place or None, line=line) from None


def _read_file(file: Path) -> YamlSource:
    try:
        return read_source(file)
    except SpecError as error:
        # Some of its hints speak of job YAMLs.
        about_jobs = error.hint is not None and ("job" in error.hint or "tradewind init" in error.hint)
        hint = "docs/guides/administration.md shows one" if about_jobs else error.hint
        raise SpecError(error.message, hint=hint, file=error.file, line=error.line) from None


def _lead_from(folder: Path, document: dict[str, Any]) -> None:
    """Resolve paths in a file from its folder."""
    for key, field in ServiceSettings.model_fields.items():
        value = document.get(key)
        if isinstance(value, str) and (field.annotation is Path or Path in typing.get_args(field.annotation)):
            document[key] = folder / expand(value)


def _flag_value(text: str) -> Any:
    """Convert the value of a flag: a list or a mapping to JSON; all else is read by the setting's own type."""
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def check_secrets(settings: ServiceSettings) -> None:
    """Check that the secrets that the settings refer to can be read, before the first use fails.

    Without the one of an administrator's place, that is the first upload of somebody's results.

    Args:
        settings: The settings of a server that begins.

    Raises:
        PrerequisiteError: One cannot be read; the message has the reference, never a value.
        MissingProgramError: The package ``keyring`` is not installed.
    """
    named = {name: getattr(settings, name) for name in ("metrics_token", "secret_key", "smtp_password")}
    for place, access in settings.results_places.items():
        named[f"results_places: password of {place}"] = access.get("password", "")
    resolve_secrets({name: reference for name, reference in named.items() if reference})

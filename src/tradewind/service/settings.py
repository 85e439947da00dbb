"""What the administrator sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError


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
"""How a place is entered; its password is a reference."""


class ServiceSettings(BaseModel):
    """The settings of a server: those of ``tradewind serve``, of its configuration file, and of the environment.

    Attributes:
        host: The address to listen on.
        port: The port; 0 takes a free one.
        public_url: What users type to come here, where a proxy stands before the server; empty without one.
        database: Address of the store; without it that of ``TRADEWIND_STORE``, or the user's own.
        behind_proxy: Whether ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are believed.
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
        stop_seconds: Seconds that open calls and the worker have to end in, when the server is told to.
        log_format: ``text`` or ``json``, one line an event, on standard error.
        log_level: The least severe lines that are written: ``debug``, ``info``, ``warning`` or ``error``.
        streams: Event streams that a process may have open at a time; beyond it, 503.
        streams_per_user: Those of one user; beyond it, 429.
        stream_minutes: Minutes after which a stream ends, so that its client comes again and says who it is.
        beat_seconds: Seconds of silence after which a stream says that it is still there.
        event_seconds: Seconds between two looks for new events.
        upload_mib: MiB that the files which a tenant hands in with forms may take together.
        free_mib: MiB that the disks of runs and of the database must have left for the server to count as ready.
        metrics_token: Reference to the token that ``/metrics`` asks for; without one it answers this machine only.
        link_days: Days after which a link to results leads nowhere, unless its maker says otherwise.
        secret_key: Reference to the key that secrets of users are sealed with; all servers of a database need the same
            one. Without this setting, the key is a file in the data folder.
        private_addresses: Whether webhooks and results of users may go to addresses inside the server's network.
        results_places: Places of the administrator's that results of users may go to, by address, each with how it is
            entered (``user``, ``password``, ``endpoint``, ``identity``, ``known_hosts``; the password is a reference);
            ``{user}`` and ``{tenant}`` in an address are those of whoever sends results there.
        own_places: Whether users may name places of their own.
        mail_from: The sender of e-mails; none are sent without it and ``smtp_host``.
        smtp_host: The server that e-mails are handed to.
        smtp_port: Its port.
        smtp_security: ``starttls``, ``tls`` (from the start), or ``none``.
        smtp_user: The login there; empty for none.
        smtp_password: Reference to its password: ``env:NAME`` or ``file:PATH``.
        smtp_authorities: PEM file of the authorities that its certificate is checked by; the system's without it.
        explore: Whether the first proposal may be one to learn from, while an application has fewer than fifty runs.
        shared_history: Whether proposals for an application of all tenants learn from the runs of all of them.
        user_hooks: Whether requests and applications of ordinary users may bring hooks, which run on the server.
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
    explore: bool = Field(default=False, description="The first proposal may be one to learn from, as in paper 5.")
    shared_history: bool = Field(default=False, description="Proposals learn from other tenants' runs, too.")
    user_hooks: bool = Field(default=False, description="Ordinary users may bring hooks, which run on the server.")

"""What the administrator sets."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class ServiceSettings(BaseModel):
    """The settings of a server: those of ``tradewind serve``, of its configuration file, and of the environment.

    Attributes:
        host: The address to listen on.
        port: The port; 0 takes a free one.
        public_url: What users type to come here, where a proxy stands before the server; empty without one.
        behind_proxy: Whether ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are believed.
        tls_certificate: PEM file of the certificate chain; plain HTTP without it.
        tls_key: PEM file of its key.
        session_hours: Hours after which a session that nobody uses ends.
        max_body_mib: MiB that the body of a request to the server may have at most.
        runs: Requests that this server carries out at a time; 0 makes a server that only answers.
        lease_seconds: Seconds after which another server takes over what a silent one carried out.
        user_hooks: Whether requests and applications of ordinary users may bring hooks, which run on the server.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(default=8765, ge=0, le=65535, description="The port; 0 takes a free one.")
    public_url: str = Field(default="", description="What users type to come here, where a proxy stands before it.")
    behind_proxy: bool = Field(default=False, description="Believe X-Forwarded-For and X-Forwarded-Proto.")
    tls_certificate: Path | None = Field(default=None, description="PEM file of the certificate chain.")
    tls_key: Path | None = Field(default=None, description="PEM file of its key.")
    session_hours: float = Field(default=12.0, gt=0, description="Hours after which an unused session ends.")
    max_body_mib: float = Field(default=16.0, gt=0, description="MiB that the body of a call may have at most.")
    runs: int = Field(default=4, ge=0, description="Requests carried out at a time; 0: this server only answers.")
    lease_seconds: float = Field(default=15.0, gt=0, description="Silence after which another server takes over.")
    user_hooks: bool = Field(default=False, description="Ordinary users may bring hooks, which run on the server.")

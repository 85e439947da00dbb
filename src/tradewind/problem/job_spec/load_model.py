"""The load generator of a job YAML as pydantic models."""

from __future__ import annotations

from pydantic import Field

from tradewind.problem.job_spec.values import Bytes, Command, Environment, PositiveDuration, StrictModel, Whole


class ReadyModel(StrictModel):
    """Sign that the application under test is ready for the load."""

    path: str = Field("", description="An HTTP path that must answer: /health. Without it an open port is enough.")
    log: str = Field("", description="A regular expression that a line of its output must match.")
    within: PositiveDuration = Field(60.0, description="Time that it may take; the run has failed after it.")


class LoadModel(StrictModel):
    """A load generator beside the application under test; the run ends when the load does."""

    command: Command = Field(description="The program that drives the application, and its arguments; templates.")
    image: str | None = Field(None, description="Its container image; the job's own without it.")
    env: Environment = Field({}, description="Its environment variables, beside the job's; templates.")
    port: int | None = Field(None, ge=1, le=65535, description="The port that the application listens on.")
    ready: ReadyModel = Field(ReadyModel(), description="When the application is ready.")
    cpus: Whole | None = Field(
        None,
        ge=1,
        le=4096,
        description="CPUs that it is held to: others than the application's where they share a host.",
    )
    memory: Bytes | None = Field(None, description="Memory that it is held to: 512MiB.")

"""What the documents that users send look like, for the schema: the functions behind the routes judge them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi.openapi.models import Example
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema


class Notify(BaseModel):
    """Who is told when it is over."""

    email: bool = Field(False, description="The user, by e-mail.")
    webhook: str = Field("", description="An address that is sent a POST.")


class OwnDocument(BaseModel):
    """A request for a run of an application, or for a search over its configurations."""

    model_config = ConfigDict(title="Tradewind's own")

    application: str = Field(description="The application: name, or name@3 for its version 3.")
    parameters: dict[str, Any] = Field({}, description="The values of its form, by field.")
    configuration: dict[str, Any] = Field({}, description="A value for each parameter of its space.")
    resources: dict[str, float] = Field(
        {}, description="Instead of a configuration: nodes, cpu (of each), memory (MiB of each) and time (s)."
    )
    search: dict[str, Any] = Field(
        {}, description="Makes it a search: budget ($2), deadline (30m), and what else a job YAML has for them."
    )
    backend: str = Field("", description="Where it runs; without it, where its application says.")
    results: str = Field("", description="Where its results go: an address of S3, WebDAV, SFTP or a folder.")
    notify: Notify = Field(Notify(), description="Who is told when it is over.")
    name: str = Field("", description="What you call it.")


class FigureFour(BaseModel):
    """A request as in figure 4 of the publication on virtual clusters."""

    model_config = ConfigDict(title="Figure 4")

    resources: dict[str, float] = Field(description="nodes, cpu (threads of each), memory (MiB of each) and time (s).")
    template: str = Field(description="The job file, with variables.")
    scheduler: dict[str, Any] = Field({}, description="name: who runs the job on the nodes.")
    backend: dict[str, Any] = Field({}, description="name: who makes the nodes; without it there are some already.")
    user_data: dict[str, Any] = Field({}, description="What the template's variables are, and what hooks may read.")
    hooks: list[dict[str, Any]] = Field([], description="Scripts: stage, condition (before or after) and name.")


def _loose(model: type[BaseModel]) -> dict[str, Any]:
    """A model as a schema that says what there is, and leaves it to the functions to say what is wrong."""
    schema = model.model_json_schema()
    for name, inner in schema.pop("$defs", {}).items():
        for field in schema["properties"].values():
            if field.get("$ref") == f"#/$defs/{name}":
                field.pop("$ref")
                field |= {key: value for key, value in inner.items() if key not in ("title", "description")}
    for field in schema["properties"].values():
        field.pop("default", None)
    return schema


RequestDocument = Annotated[
    dict[str, Any],
    WithJsonSchema({"title": "Request document", "type": "object", "anyOf": [_loose(OwnDocument), _loose(FigureFour)]}),
]
"""A request's document, as a parameter of a route."""

REQUEST: dict[str, Example] = {
    "run": {
        "summary": "A run of an application",
        "value": {
            "application": "matrix",
            "parameters": {"size": 4000},
            "configuration": {"instance": "c5.large", "nodes": 2},
            "notify": {"email": True},
        },
    },
    "search": {
        "summary": "A search for the cheapest configuration",
        "value": {
            "application": "matrix@2",
            "parameters": {"size": 4000},
            "search": {"budget": "$2", "deadline": "30m"},
        },
    },
    "figure-4": {
        "summary": "Figure 4 of the publication on virtual clusters",
        "value": {
            "resources": {"nodes": 2, "memory": 4096, "cpu": 4, "time": 100},
            "scheduler": {"name": "htcondor"},
            "backend": {"name": "opennebula"},
            "template": "executable = run.sh\narguments = {{ key1 }}\nqueue {{ resources.nodes }}\n",
            "user_data": {"key1": "value1"},
            "hooks": [{"stage": "submitting", "condition": "before", "name": "download-input-data.sh"}],
        },
    },
}
"""Examples of what is asked for."""

CHANGES: dict[str, Example] = {
    "larger": {"summary": "Another parameter", "value": {"parameters": {"size": 8000}}},
    "elsewhere": {"summary": "On another backend, without a name", "value": {"backend": "cloud", "name": None}},
}
"""Examples of changes."""

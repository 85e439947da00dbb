"""Hooks of a job YAML: what is done before or after the stages of a run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tradewind.problem.job_spec.values import Command, PositiveDuration, SchemaForms, StrictModel, validation_error


def _hook(value: Any) -> Any:
    return {"command": value} if isinstance(value, str | list) else value


class HookModel(StrictModel):
    """Something to do before or after a stage of a run."""

    command: Command | None = Field(None, description="A program and its arguments.")
    python: str | None = Field(
        None, description="A Python function, module:function.", pattern=r"^[\w.]+:[A-Za-z_]\w*$"
    )
    timeout: PositiveDuration = Field(60.0, description="Time after which it is ended, and counts as failed.")

    @model_validator(mode="after")
    def _one_action(self) -> HookModel:
        if (self.command is None) == (self.python is None):
            raise validation_error("a hook needs either command or python")
        return self


HookName = Literal[
    "before_booting",
    "after_booting",
    "before_bootstrapping",
    "after_bootstrapping",
    "before_submitting",
    "after_submitting",
    "before_executing",
    "after_executing",
    "before_collecting",
    "after_collecting",
    "on_error",
]


def _hooks(value: Any) -> Any:
    """One hook or several; a list that may be the words of one command is refused, for it would be several hooks."""
    if isinstance(value, str | dict):
        return [value]
    words = isinstance(value, list) and len(value) > 1 and all(isinstance(each, str) for each in value)
    if words and len(value[0].split()) == 1:
        raise validation_error(
            f"{value} may be one command or {len(value)} hooks",
            f"write {{command: [{', '.join(value)}]}}, or [{{command: {value[0]}}}, ...] for hooks one after the other",
        )
    return value


Hook = Annotated[HookModel, BeforeValidator(_hook), SchemaForms({"type": "string"})]
Hooks = Annotated[
    list[Hook],
    BeforeValidator(_hooks),
    SchemaForms({"type": "string"}, {"type": "object"}),
]

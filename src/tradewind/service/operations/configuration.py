"""Where the settings of a server come from: flags, the environment, a configuration file, defaults; in this order."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tradewind.deployer.environment import resolve_secrets
from tradewind.errors import SpecError
from tradewind.problem.job_spec.validation_errors import spec_errors
from tradewind.problem.yaml_source import YamlSource, read_source
from tradewind.service.settings import ServiceSettings
from tradewind.utils.paths import expand

ENVIRONMENT_PREFIX = "TRADEWIND_SERVICE_"
"""The environment's variables: ``TRADEWIND_SERVICE_PORT`` is the setting ``port``."""

CONFIGURATION_VARIABLE = f"{ENVIRONMENT_PREFIX}CONFIG"
"""The environment's variable that names the configuration file, where no flag does."""

_COMMAND_LINE = "the command line"


def read_settings(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> ServiceSettings:
    """The settings of a server.

    Args:
        flags: Those of the command line, by name.
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
    """Paths in a file count from its folder."""
    for key, field in ServiceSettings.model_fields.items():
        value = document.get(key)
        if isinstance(value, str) and (field.annotation is Path or Path in typing.get_args(field.annotation)):
            document[key] = folder / expand(value)


def _flag_value(text: str) -> Any:
    """A list or a mapping is written as JSON; all else is read by the setting's own type."""
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def check_secrets(settings: ServiceSettings) -> None:
    """See that the secrets that the settings refer to can be read; otherwise what fails first would tell.

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

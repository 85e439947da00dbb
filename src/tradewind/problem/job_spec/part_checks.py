"""Checks that the parts which a job YAML names are installed, and take the settings that it gives them."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from tradewind import plugins
from tradewind.errors import PluginError, SpecError
from tradewind.problem.job_spec.model import ChoiceModel, JobFile
from tradewind.problem.job_spec.validation_errors import spec_errors
from tradewind.problem.yaml_source import KeyPath, YamlSource
from tradewind.utils.user_functions import anchored_reference, is_reference


def wrong_parts(model: JobFile, source: YamlSource, base: Path) -> list[SpecError]:
    """Find parts that are not installed, and settings that they do not have or lack.

    Args:
        model: The job YAML.
        source: The same as it was written.
        base: The folder that files of own parts are seen from.
    """
    choices: list[tuple[str, KeyPath, ChoiceModel]] = [
        ("runner", ("deploy", "runner"), model.deploy.runner),
        ("provisioner", ("deploy", "provisioner"), model.deploy.provisioner),
        ("selector", ("select",), model.select),
        ("searcher", ("searcher",), model.searcher),
    ]
    several = isinstance(source.document.get("interpret"), list)
    choices += [
        ("interpreter", ("interpret", i) if several else ("interpret",), one) for i, one in enumerate(model.interpret)
    ]
    choices += [
        ("catalogue", ("catalogues", name), ChoiceModel.model_validate({**settings, "use": name}))
        for name, settings in model.catalogues.items()
    ]
    if model.early_stop:
        choices.append(("stopper", ("early_stop",), model.early_stop))
    listed = isinstance(source.document.get("callbacks"), list)
    choices += [
        ("callback", ("callbacks", i) if listed else ("callbacks",), one) for i, one in enumerate(model.callbacks)
    ]
    problems = [
        source.error(
            ("catalogues", name, "use"), f"unknown key 'use' in catalogues.{name}", "its name says which it is"
        )
        for name, settings in model.catalogues.items()
        if "use" in settings
    ]
    for kind, place, choice in choices:
        problems += _wrong_part(kind, place, choice, source, base)
    return problems


def _wrong_part(kind: str, place: KeyPath, choice: ChoiceModel, source: YamlSource, base: Path) -> list[SpecError]:
    label = ".".join(str(piece) for piece in place)
    own = is_reference(choice.use)
    if not own and choice.use not in plugins.names(kind):
        hint = plugins.unknown_part_hint(kind, choice.use)
        return [source.error((*place, "use"), f"{label}: there is no {kind} named {choice.use!r}", hint)]
    if not own and not choice.model_extra and not source.has(place):
        return []
    try:
        part = plugins.load(kind, anchored_reference(choice.use, base))
    except PluginError as error:
        # Of an installed part it is raised, with its reason, by whoever makes the part.
        return [source.error((*place, "use"), f"{label}: {error.message}", error.hint)] if own else []
    try:
        part.Settings.model_validate(dict(choice.model_extra or {}))
    except ValidationError as error:
        if place[0] not in source.document:
            return []  # a default of ours, not the user's words
        return spec_errors(error, part.Settings, source, place)
    return []

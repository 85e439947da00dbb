"""Finds the installed parts by their entry points; the rest of the house knows no names.

A part is a class that derives from its room's base class (`Searcher`, `Runner`, ...) and is announced in its
distribution's metadata::

    [project.entry-points."tradewind.searchers"]
    my_searcher = "my_package.my_searcher:MySearcher"

A class in a file does without: ``path/to/file.py:MySearcher``, or ``module:MySearcher``, stands wherever a name does.

A part that does not load is reported by `broken` and does not stop the others. A name that two distributions
announce is an error as soon as that name is asked for.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from tradewind.errors import InputError, PluginError, SpecError, TradewindError
from tradewind.utils.dependencies import installed as installed
from tradewind.utils.suggestions import did_you_mean
from tradewind.utils.user_functions import UserFunctionError, is_reference, load_object

KINDS = (
    "searcher", "selector", "catalogue", "provisioner", "runner", "interpreter", "stopper", "callback", "store",
    "planner", "fairness", "priority",
)  # fmt: skip
"""The kinds of part: in the order of a trial's way through the house, then those of what stands on the trials."""

_GROUPS = {"fairness": "fairness_rules", "priority": "priorities"}
"""Where the plural of a kind is not its name and an s."""

_log = logging.getLogger("tradewind.plugins")


class Settings(BaseModel):
    """The settings of a part: they make its YAML keys, its command-line help and its reference page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false for a number: pydantic takes them for 1 and 0."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and set(get_args(kind) or (kind,)) <= {int, float, type(None)}:
            raise PydanticCustomError("number", "{given} is no number", {"given": str(value).lower()})
        return value


class Capability:
    """Marker: a part can do what the names of the capability classes that it inherits say."""


class CallsNetwork(Capability):
    """True if calls may take seconds (a network, another program): they are made in threads, several at a time."""


class CallsProgram(Capability):
    """True if it calls a program of the user's, which has to be there before a search begins."""

    def check_program(self) -> None:
        """See that the program is there and can be executed.

        Raises:
            PrerequisiteError: It is not.
        """
        raise NotImplementedError


class Plugin:
    """Common base of all parts.

    Attributes:
        name: The entry-point name, set by the registry.
        Settings: The model of its settings.
        needs: Functions that look for the programs, packages and daemons that it works with, each raising the error
            that a use without them would raise; see `missing`.
    """

    name: ClassVar[str] = ""
    Settings: ClassVar[type[Settings]] = Settings
    needs: ClassVar[tuple[Callable[[], object], ...]] = ()

    @classmethod
    def summary(cls) -> str:
        """The first line of the part's docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]

    @classmethod
    def capabilities(cls) -> tuple[str, ...]:
        """The names of the capability classes that the part inherits, sorted."""
        return tuple(sorted(c.__name__ for c in cls.__mro__ if Capability in c.__bases__))

    @classmethod
    def missing(cls) -> str:
        """Find what this machine lacks for the part's usual settings, and how to get it; empty if nothing.

        ``tradewind doctor`` asks each part. The answer is one line (``there is no sbatch program: apt-get install
        slurm-client``) and comes at once: a program is looked for, a package, a socket; nothing is started and no
        network is asked. It is what the functions of ``needs`` raise, all of it.
        """
        lacks: dict[str, str] = {}
        for look in cls.needs:
            try:
                look()
            except TradewindError as error:
                # The first colon of the line ends what is missing.
                lacks[error.message.replace(": ", ", ")] = error.hint or ""
        hints = "; ".join(dict.fromkeys(hint for hint in lacks.values() if hint))
        return "; ".join(lacks) + (f": {hints}" if hints else "")


P = TypeVar("P", bound=Plugin)


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A part that does not load.

    Attributes:
        kind: Kind of the part.
        name: Its entry-point name.
        reason: Why, in one line.
    """

    kind: str
    name: str
    reason: str


def group(kind: str) -> str:
    """The entry-point group of a kind: ``tradewind.searchers`` of ``searcher``."""
    return f"tradewind.{_GROUPS.get(kind, f'{kind}s')}"


@functools.cache
def _everything() -> Mapping[str, Mapping[str, tuple[EntryPoint, ...]]]:
    """All announced parts by kind and name: the metadata of all distributions are read for it, and only once."""
    every = entry_points()
    found: dict[str, dict[str, tuple[EntryPoint, ...]]] = {kind: {} for kind in KINDS}
    for kind, parts in found.items():
        for point in every.select(group=group(kind)):
            # The same distribution may be seen twice (an editable install beside a wheel); that is one part.
            if all(point.value != other.value for other in parts.get(point.name, ())):
                parts[point.name] = (*parts.get(point.name, ()), point)
    return found


def _announced(kind: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    if kind not in KINDS:
        raise PluginError(f"there is no kind of part named {kind!r}", hint=f"kinds are {', '.join(KINDS)}")
    return _everything()[kind]


def names(kind: str) -> list[str]:
    """The names of all announced parts of a kind, sorted, whether they load or not."""
    return sorted(_announced(kind))


def origin(kind: str, name: str) -> tuple[str, str]:
    """The distribution that announces a part, and its version; empty texts where the metadata does not say.

    Args:
        kind: One of `KINDS`.
        name: Its entry-point name.
    """
    for point in _announced(kind).get(name, ()):
        if point.dist is not None:
            return point.dist.name, point.dist.version
    return "", ""


@functools.cache
def _load(kind: str, name: str) -> type[Plugin]:
    points = _announced(kind).get(name)
    if not points:
        raise PluginError(f"there is no {kind} named {name!r}", hint=unknown_part_hint(kind, name))
    if len(points) > 1:
        where = " and ".join(sorted(point.value for point in points))
        raise PluginError(f"the {kind} name {name!r} is taken twice: {where}", hint="uninstall one of them")
    try:
        part = points[0].load()
    except Exception as error:  # whatever an outside package raises at import
        raise PluginError(
            f"the {kind} {name!r} ({points[0].value}) does not load: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(part, type) and issubclass(part, Plugin)):
        raise PluginError(f"the {kind} {name!r} ({points[0].value}) is not a class derived from Plugin")
    part.name = name
    return part


def load(kind: str, name: str) -> type[Plugin]:
    """The class of one part.

    Args:
        kind: One of `KINDS`.
        name: Its entry-point name, or ``path/to/file.py:Class``, seen from the working folder.

    Raises:
        PluginError: It is unknown, broken, or announced twice.
    """
    return _load_user_part(kind, name) if is_reference(name) else _load(kind, name)


_BASES = {
    "searcher": "tradewind.searcher.base:Searcher",
    "selector": "tradewind.selector.base:Selector",
    "catalogue": "tradewind.selector.catalogue.base:Catalogue",
    "provisioner": "tradewind.deployer.provisioner.base:Provisioner",
    "runner": "tradewind.deployer.runner.base:Runner",
    "interpreter": "tradewind.interpreter.base:Interpreter",
    "stopper": "tradewind.stopper.base:Stopper",
    "callback": "tradewind.callback.base:Callback",
    "store": "tradewind.store.base:Store",
    "planner": "tradewind.workflow.planner.base:Planner",
    "fairness": "tradewind.tenancy.fairness.base:Fairness",
    "priority": "tradewind.tenancy.priority.base:Priority",
}
"""Bases that a class of the user's must derive from; named, since this floor knows nothing of those above."""


def _load_user_part(kind: str, reference: str) -> type[Plugin]:
    _announced(kind)  # the kind is known
    try:
        part = load_object(reference, Path.cwd())
    except UserFunctionError as error:
        raise PluginError(f"the {kind} {reference!r} does not load: {error}") from None
    base = load_object(_BASES[kind], Path.cwd())
    if not (isinstance(part, type) and issubclass(part, base) and issubclass(part, Plugin)):
        hint = f"derive it from {_BASES[kind].replace(':', '.')}"
        if kind in ("selector", "interpreter") and callable(part) and not isinstance(part, type):
            hint = f"a function is written {{use: python, function: {reference!r}}}"
        raise PluginError(f"the {kind} {reference!r} is no class of a {kind}", hint=hint)
    if not part.__dict__.get("name"):  # an installed part keeps the name that it goes by
        part.name = reference
    return part


def unknown_part_hint(kind: str, name: str) -> str:
    """Suggest what to write instead of the name of a part that is not there.

    Args:
        kind: One of `KINDS`.
        name: The name.
    """
    hint = did_you_mean(name, names(kind), "installed:")
    if hint.endswith("?"):
        return hint  # a slip of the pen
    script = ", a script ./FILE.sh" if kind in ("runner", "provisioner") else ""
    return f"{hint}; a class of your own is FILE.py:CLASS{script}"


def load_all(kind: str) -> dict[str, type[Plugin]]:
    """All parts of a kind that load, by name; the others are logged (see `broken`)."""
    parts = {}
    for name in names(kind):
        try:
            parts[name] = load(kind, name)
        except PluginError as error:
            _log.warning("%s", error)
    return parts


def broken() -> list[BrokenPlugin]:
    """All announced parts that do not load, with the reason."""
    rows = []
    for kind in KINDS:
        for name in names(kind):
            try:
                load(kind, name)
            except PluginError as error:
                rows.append(BrokenPlugin(kind, name, str(error)))
    return rows


def settings_for(part: type[Plugin], given: Mapping[str, Any], *, where: str) -> Settings:
    """Validate the settings that a user gave for a part.

    Args:
        part: The part's class.
        given: The keys and values.
        where: The place in the user's words, for the error (``searcher gp``).

    Raises:
        SpecError: A key is unknown or a value is wrong.
    """
    try:
        return part.Settings.model_validate(dict(given))
    except InputError as error:  # a validator's
        raise SpecError(f"{where}: {error.message}", hint=error.hint) from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(piece) for piece in first["loc"]) or where
        known = list(part.Settings.model_fields)
        if first["type"] == "extra_forbidden":
            hint = did_you_mean(key, known, "known settings:")
            raise SpecError(f"{where}: unknown setting {key!r}", hint=hint) from None
        raise SpecError(f"{where}: {key}: {first['msg']}") from None


def create(kind: str, name: str, given: Mapping[str, Any], **arguments: Any) -> Any:
    """Make one part: its class called with validated settings and the arguments of its kind.

    Args:
        kind: One of `KINDS`.
        name: Its entry-point name.
        given: The user's settings for it.
        arguments: What the base class of the kind takes besides ``settings``.
    """
    part = load(kind, name)
    return part(settings=settings_for(part, given, where=f"{kind} {name}"), **arguments)  # type: ignore[call-arg]

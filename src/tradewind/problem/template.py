"""Fills a configuration into the words of a command and the values of environment variables.

A word is a Jinja expression in a sandbox: no files, no assignment, no macros, and bounds on what is left (`sandbox`).
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError, UndefinedError, nodes
from jinja2.exceptions import SecurityError
from jinja2.meta import find_undeclared_variables

from tradewind.errors import SpecError
from tradewind.problem.configuration import Configuration
from tradewind.problem.job import Job
from tradewind.problem.offer import Offer
from tradewind.problem.run import Load, WorkflowJob
from tradewind.problem.sandbox import ENVIRONMENT, MAX_TEXT, rendered
from tradewind.utils.paths import expand
from tradewind.utils.suggestions import did_you_mean

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_EXPANDED = re.compile(r"\$(?:[A-Za-z_]\w*|\{|\()|`")
_OPERATORS = re.compile(
    r"""
    (?: (?:^|(?<=\s)) (?:\d|&)? (?:>>?|<<?<?) (?:&\d)?   # a redirection that begins a word: > >> < 2> 2>&1 &>
      | (?:>>?|<) (?=\s|$)                               # or ends one
      | && | \|\|
      | (?:^|(?<=\s)) (?:;|\||&) | (?:;;?|\||&) (?=\s|$) # at the edge of a word: within one, they may mean themselves
    )""",
    re.VERBOSE,
)
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)

# A gap, letters, single quotes, double quotes, an escaped letter.
_PIECE = re.compile(r"""([ \t\r\n]+)|([^ \t\r\n'"\\]+)|'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)""", re.DOTALL)


def split_words(text: str) -> tuple[str, ...]:
    """The words of a command line, as a shell would split it; a backslash at the end of a line goes on in the next.

    What only a shell would understand is refused: without one it would be words for the program, which may well
    ignore them and end as if all were done.

    Raises:
        SpecError: A quote is not closed, or the text needs a shell.
    """
    joined = _QUOTED.sub(lambda match: "" if match[0] == "\\\n" else match[0], text).strip()
    try:
        words = _split(joined)
    except ValueError as error:
        raise SpecError(f"cannot split the command: {str(error).lower()}", hint="write it as a list of words") from None
    if len(words) > 1 and (variable := _ASSIGNMENT.match(joined)):
        name = variable[0].rstrip("=")
        raise SpecError(f"no shell sees the command, but it begins with {name}=", hint=f"set {name} under env")
    if found := _needs_shell(joined):
        raise SpecError(
            f"no shell sees the command, but it has {found}",
            hint='write command: [sh, -c, "..."] for a shell; quote what is meant as it stands',
        )
    return tuple(words)


def _split(text: str) -> list[str]:
    """As `shlex.split`, in a time that grows with the length of the text: that one's grows with a word's square.

    Raises:
        ValueError: A quote is not closed, or the text ends with a backslash.
    """
    words: list[str] = []
    word: list[str] | None = None
    end = 0
    for match in _PIECE.finditer(text):
        if match.start() != end:
            break
        end = match.end()
        gap, plain, single, double, escaped = match.groups()
        if gap is None:
            word = [] if word is None else word
            word.append(plain or single or escaped or re.sub(r'\\(["\\])', r"\1", double or ""))
        elif word is not None:
            words.append("".join(word))
            word = None
    if end != len(text):
        raise ValueError("No escaped character" if text[end] == "\\" else "No closing quotation")
    return words if word is None else [*words, "".join(word)]


def _needs_shell(text: str) -> str:
    """The part of a command line that only a shell would understand, in words; empty where there is nothing."""
    # In double quotes a shell still fills in variables, in single ones it does not.
    live = _QUOTED.sub(lambda match: re.sub(r"\\.", "_", match[0]) if match[0][0] == '"' else "_", text)
    if found := _EXPANDED.search(live):
        return found[0] if found[0] == "`" or found[0][-1].isalnum() else f"{found[0]}..."
    bare = _QUOTED.sub("_", text)
    if "\n" in bare:
        return "several lines (after > instead of | they are one)"
    found = _OPERATORS.search(bare)
    return found[0] if found else ""


BUILT_IN = frozenset({"instance", "nodes", "fraction", "python"})
"""The variables that every template may name, besides the parameters."""

_HOLE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_MAX_WORD = 10_000
_MAX_FILE = 65_536
_REFUSED: tuple[type[nodes.Node], ...] = (
    *(nodes.Assign, nodes.AssignBlock, nodes.Block, nodes.CallBlock, nodes.Extends, nodes.FilterBlock),
    *(nodes.FromImport, nodes.Import, nodes.Include, nodes.Macro, nodes.With),
)


class _Instance:
    """The offer as templates see it."""

    __slots__ = ("_offer",)

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def __str__(self) -> str:
        return self._offer.instance_type

    def __getattr__(self, name: str) -> float | str:
        value = None if name.startswith("_") else self._offer.attribute(name)
        if value is None:
            raise AttributeError(name)
        return value


def split_command(text: str) -> tuple[str, ...]:
    """The words of a command line, as a shell would split it; ``{{ ... }}`` stays in one word.

    Raises:
        SpecError: A quote is not closed, or the text needs a shell.
    """
    holes: list[str] = []

    def hide(match: re.Match[str]) -> str:
        holes.append(match[0])
        return f"\ue000{len(holes) - 1}\ue001"

    words = split_words(_HOLE.sub(hide, text))
    return tuple(re.sub("\ue000(\\d+)\ue001", lambda match: holes[int(match[1])], word) for word in words)


@functools.lru_cache(maxsize=4096)
def _compiled(word: str) -> Template:
    _variables(word)
    return ENVIRONMENT.bounded(word)


@functools.lru_cache(maxsize=4096)
def _variables(word: str, most: int = _MAX_WORD) -> frozenset[str]:
    """The names that a template uses; `SpecError` where it does not parse or uses what is not allowed."""
    if len(word) > most:
        raise SpecError(f"a template is longer than {most} characters")
    try:
        tree = ENVIRONMENT.parse(word)
        for node in tree.find_all(_REFUSED):
            raise SpecError(f"the template {word!r} uses {type(node).__name__.lower()!r}, which is not allowed")
        for name in tree.find_all(nodes.Filter):
            if name.name not in ENVIRONMENT.filters:
                hint = f"known filters: {', '.join(sorted(ENVIRONMENT.filters))}"
                raise SpecError(f"the template {word!r} uses the unknown filter {name.name!r}", hint=hint)
        if any(loop.recursive or _depth(loop) > 2 for loop in tree.find_all(nodes.For)):
            raise SpecError(f"the template {word!r} nests loops too deeply")
        ENVIRONMENT.compile(tree)
        return frozenset(find_undeclared_variables(ENVIRONMENT.parse(word)) - set(ENVIRONMENT.globals))
    except TemplateSyntaxError as error:
        hint = "each word is a template by itself; in YAML, quote a value that starts with {"
        raise SpecError(f"cannot read the template {word!r}: {error.message}", hint=hint) from None
    except RecursionError:
        raise SpecError(f"the template {word[:60]!r}... is nested too deeply") from None


def _depth(loop: nodes.For) -> int:
    return 1 + max((_depth(inner) for inner in loop.find_all(nodes.For)), default=0)


def check_template(word: str, known: Collection[str]) -> None:
    """Check a word before anything is run.

    Args:
        word: The template.
        known: The variables that it may name.

    Raises:
        SpecError: It does not parse, or names something else.
    """
    if not _has_holes(word):
        return
    for name in sorted(_variables(word) - set(known)):
        hint = did_you_mean(name, sorted(known), "known here:", "nothing")
        raise SpecError(f"the template {word!r} names {name!r}, which is no parameter", hint=hint)


def check_text(text: str, known: Collection[str], where: str) -> None:
    """Check the template of a whole file.

    Args:
        text: The template.
        known: The variables that it may name.
        where: The file, for errors.

    Raises:
        SpecError: It does not parse, or names something else.
    """
    try:
        unknown = sorted(_variables(text, _MAX_FILE) - set(known)) if _has_holes(text) else []
    except SpecError as error:
        message = error.message.replace(repr(text), f"of {where}").replace(repr(text[:60]) + "...", f"of {where}")
        raise SpecError(message, hint=error.hint) from None
    for name in unknown:
        hint = did_you_mean(name, sorted(known), "known here:", "nothing")
        raise SpecError(f"the template of {where} names {name!r}, which is no field", hint=hint)


def fill_text(text: str, variables: Mapping[str, Any], where: str) -> str:
    """The template of a whole file with values filled in.

    Args:
        text: The template, as `check_text` takes it.
        variables: The values.
        where: The file, for errors.

    Raises:
        SpecError: It fails.
    """
    if not _has_holes(text):
        return text
    try:
        return rendered(ENVIRONMENT.bounded(text), variables, 10 * MAX_TEXT)
    except (TemplateError, ArithmeticError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise SpecError(f"the template of {where} fails: {error}") from None


def names_in(word: str, *, but: str = "") -> frozenset[str]:
    """The variables that a template writes into its text, or calculates with.

    Args:
        word: The template.
        but: Leave out those that stand directly before this filter, and those of conditions.
    """
    if not _has_holes(word):
        return frozenset()
    tree = ENVIRONMENT.parse(word)
    spared: set[int] = set()
    for node in tree.find_all(nodes.Filter) if but else ():
        if node.name == but and isinstance(node.node, nodes.Name):
            spared.add(id(node.node))
    conditions: list[nodes.Node] = [one.test for one in tree.find_all(nodes.If)] if but else []
    conditions += [one.test for one in tree.find_all(nodes.CondExpr)] if but else []
    for test in conditions:
        spared |= {id(name) for name in test.find_all(nodes.Name)} | {id(test)}
    found = (name for name in tree.find_all(nodes.Name) if id(name) not in spared)
    return frozenset(name.name for name in found)


def begins_with(word: str) -> frozenset[str]:
    """The variables of a template that begins with a hole: what they hold may begin the whole word."""
    return names_in(word) if _HOLE.match(word) else frozenset()


def _has_holes(word: str) -> bool:
    return "{{" in word or "{%" in word or "{#" in word


def render(
    job: Job, configuration: Configuration, offer: Offer, fraction: float = 1.0
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Fill a configuration into a job's command and environment.

    Booleans are written ``true`` and ``false``. A word with a ``{% if %}`` that comes out empty is left out, so that
    a flag can depend on a parameter; every other word stays one argument, even an empty one.

    Args:
        job: The job.
        configuration: The value of each active parameter.
        offer: The machines.
        fraction: Share of the input to run, above 0 and at most 1.

    Returns:
        The words of the command, and the environment variables that the job sets.

    Raises:
        SpecError: A template names something that has no value, or fails.
    """
    variables = _values(job, configuration, offer, fraction)
    argv = tuple(word for word in _words(job.command, variables))
    return argv, {name: _fill(text, variables, f"env {name}") for name, text in job.env.items()}


def render_load(job: Job, configuration: Configuration, offer: Offer, fraction: float = 1.0) -> Load | None:
    """The job's load generator with a configuration filled in, or None; see `render`."""
    if job.load is None:
        return None
    variables = _values(job, configuration, offer, fraction)
    env = {name: _fill(text, variables, f"env {name}") for name, text in job.load.env.items()}
    return replace(job.load, argv=tuple(_words(job.load.argv, variables)), env=env)


def render_workflow(job: Job, configuration: Configuration, offer: Offer, fraction: float = 1.0) -> WorkflowJob | None:
    """The job's workflow with a configuration filled in and its file seen from the working folder, or None."""
    if job.workflow is None:
        return None
    variables = _values(job, configuration, offer, fraction)
    planner = dict(_settings(job.workflow.planner, variables, "planner"))
    tasks = {
        pattern: dict(_settings(changes, variables, f"tasks {pattern}"))
        for pattern, changes in job.workflow.tasks.items()
    }
    file, *measured = (
        str(job.workdir / expand(_fill(text, variables, "workflow")))
        for text in (job.workflow.file, *job.workflow.measured)
    )
    return replace(job.workflow, file=file, planner=planner, tasks=tasks, measured=tuple(measured))


def _values(job: Job, configuration: Configuration, offer: Offer, fraction: float) -> dict[str, Any]:
    variables: dict[str, Any] = {**job.parameters.values, "nodes": offer.nodes, **configuration}
    return variables | {"instance": _Instance(offer), "fraction": fraction, "python": sys.executable}


def _settings(texts: Mapping[str, str], variables: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """Settings filled in; one with a ``{% if %}`` that comes out empty is left out, as words are."""
    for name, template in texts.items():
        text = _fill(template, variables, f"{where} {name}")
        if text or "{%" not in template:
            yield name, text


def _words(command: tuple[str, ...], variables: Mapping[str, Any]) -> Iterator[str]:
    for template in command:
        word = _fill(template, variables, "command")
        if word or "{%" not in template:
            yield word


def _fill(word: str, variables: Mapping[str, Any], where: str) -> str:
    if not _has_holes(word):
        return word
    try:
        text = rendered(_compiled(word), variables)
    except UndefinedError as error:
        hint = "a conditional parameter has no value where it does not exist: {% if it is defined %}...{% endif %}"
        raise SpecError(f"{where}: the template {word!r}: {error.message}", hint=hint) from None
    except SecurityError as error:
        raise SpecError(f"{where}: the template {word!r} is not allowed: {error}") from None
    except (TemplateError, ArithmeticError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise SpecError(f"{where}: the template {word!r} fails: {error}") from None
    if "\0" in text:
        raise SpecError(f"{where}: the template {word!r} gives a text that no program takes")
    return text


__all__ = [
    "BUILT_IN",
    "begins_with",
    "check_template",
    "check_text",
    "fill_text",
    "names_in",
    "render",
    "render_load",
    "render_workflow",
    "split_command",
]

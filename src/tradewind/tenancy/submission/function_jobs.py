"""Job specifications of Python functions: a run of such a job is a process that calls the function."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.engine.tunable import Tunable
from tradewind.errors import InputError, SpecError
from tradewind.problem import COST, RUNTIME
from tradewind.problem.job_spec.spec import JobSpec, parse_mapping
from tradewind.tenancy.submission.function_program import LOADING, MODULE
from tradewind.utils.paths import expand
from tradewind.utils.user_functions import UserFunctionError, load_object


@dataclass(frozen=True, slots=True)
class FunctionJob:
    """A tunable function and how a run finds it.

    Attributes:
        function: The function.
        reference: ``train.py:train`` or ``module:train``, as seen from the folder.
        folder: The folder that runs start in, of which a snapshot is kept.
    """

    function: Tunable[..., Any]
    reference: str
    folder: Path

    def spec(self, overrides: Mapping[str, Any] | None = None) -> JobSpec:
        """The specification of a search over the function's arguments.

        Args:
            overrides: Values to replace, by key of a job YAML.

        Raises:
            SpecError: What the function was declared with is wrong.
        """
        given = self.function.specification
        job: dict[str, Any] = {"workdir": str(self.folder), **given.get("job", {})}
        if "command" in job:
            hint = "leave job.command out of @tunable: the function is the program"
            raise SpecError("job.command: the function would not be called", hint=hint, file=self.reference)
        # The interpreter of an image is its own; elsewhere it is the one that has the function's packages.
        python = "python3" if job.get("image") else sys.executable
        document = {
            "interpret": [{"use": "exit_code", "stderr": True}, {"use": "json_lines", "optional": True}],
            **given,
        }
        # Which metric a bare number is a value of is known once the specification has been read.
        document["job"] = {**job, "command": [python, "-m", MODULE, self.reference]}
        read = parse_mapping(document, file=self.reference, base=self.folder, overrides=overrides)
        metric = read.objective.metric
        document["job"]["command"].append("" if metric in (COST, RUNTIME) else metric)
        return parse_mapping(document, file=self.reference, base=self.folder, overrides=overrides)


def load_function(reference: str) -> FunctionJob:
    """The tunable function that ``path/to/file.py:function`` or ``module:function`` names.

    A file's folder is the one that its runs start in; a module is looked for in the current folder first.

    Raises:
        InputError: It is not there, does not load, or is not tunable.
    """
    place, _, name = reference.rpartition(":")
    folder = Path.cwd()
    if place.endswith(".py"):
        path = expand(place).absolute()
        folder, reference = path.parent, f"{path.name}:{name}"
    try:
        found = load_object(reference, folder)
    except UserFunctionError as error:
        hint = "name a function as file.py:function or module:function"
        if "attempted relative import" in str(error) and (module := _in_package(expand(place))):
            hint = f"it is part of a package: in {module[1]}, tradewind submit {module[0]}:{name}"
        raise InputError(f"{reference}: {error}", hint=hint) from None
    return FunctionJob(_tunable(found, reference), reference, folder)


def _in_package(file: Path) -> tuple[str, Path] | None:
    """The name of a file's module in its package, and the folder that the package is in; None without a package."""
    names, folder = [file.stem], file.absolute().parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return (".".join(names), folder) if len(names) > 1 else None


def function_job(function: Tunable[..., Any]) -> FunctionJob:
    """A tunable function of this program, as a run of its own finds it.

    Raises:
        InputError: No other process finds it: it is defined in a notebook, on a console or within a function.
    """
    code: Any = function.__wrapped__  # type: ignore[attr-defined]
    name, module = str(code.__qualname__), str(code.__module__)
    file = getattr(sys.modules.get(module), "__file__", None)
    if not name.isidentifier() or file is None or not Path(file).is_file():
        raise InputError(
            f"{name}: no other process finds this function",
            hint="define it at the top level of a file: a cluster runs it in processes of their own",
        )
    path = Path(file).absolute()
    package = sys.modules[module].__package__
    if module == "__main__" or not package:
        return FunctionJob(function, f"{path.name}:{name}", path.parent)
    return FunctionJob(function, f"{module}:{name}", path.parents[len(package.split("."))])


def refuse_while_loading(name: str) -> None:
    """Refuse to submit a function while a run loads its file.

    Raises:
        InputError: It does.
    """
    if os.environ.get(LOADING):
        raise InputError(
            f"{os.environ[LOADING]}: its file submits {name} when it is loaded, and so would each run",
            hint='write the call under: if __name__ == "__main__":',
        )


def _tunable(found: Any, reference: str) -> Tunable[..., Any]:
    if isinstance(found, Tunable):
        return found
    raise InputError(
        f"{reference} is not tunable", hint="write @tradewind.tunable({...}) with its space above the function"
    )

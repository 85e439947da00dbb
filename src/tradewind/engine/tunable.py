"""Makes a Python function tunable: it is called as before, and searched over its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from tradewind.engine.function_calls import check_arguments, check_plain_function
from tradewind.errors import ConfigurationError

if TYPE_CHECKING:
    from tradewind.problem import Trial

P = ParamSpec("P")
R = TypeVar("R", bound="float | Mapping[str, float] | None")


class Tunable(Generic[P, R]):
    """A function that can be called as before, and tuned.

    Args:
        function: The function.
        specification: The job YAML's keys.
    """

    def __init__(self, function: Callable[P, R], specification: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.specification = dict(specification)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self._function(*args, **kwargs)

    def tune(
        self,
        trials: int | None = None,
        *,
        store: str | None = None,
        fresh: bool = False,
        progress: bool | None = None,
    ) -> Trial | None:
        """Search for the best arguments.

        Args:
            trials: Calls at most, now.
            store: Address of the store; the user's own without it.
            fresh: Start anew even if there is a study to go on with.
            progress: Show a progress bar, as for `Study.optimise`.

        Returns:
            The best trial, or None.
        """
        from tradewind.engine.study import Study  # a run that only calls the function need not wait for it

        with Study(self.specification, store=store, fresh=fresh) as study:
            return study.optimise(self._function, trials, progress=progress)


def _checked(space: object) -> dict[str, Any]:
    """The arguments of a function, by name."""
    if not isinstance(space, Mapping):
        hint = "give the arguments by name: @tunable({'workers': '1..8'})"
        raise ConfigurationError(f"tunable({space!r:.80}): that is no space", hint=hint)
    return dict(space)


def tunable(space: Mapping[str, Any], **specification: Any) -> Callable[[Callable[P, R]], Tunable[P, R]]:
    """Make a function tunable.

    Args:
        space: Its arguments, as under ``space`` in a job YAML.
        specification: Further keys of a job YAML: ``objective``, ``constraints``, ``budget``, ``searcher``, ...
            Without an ``objective`` the value that the function returns is made small.

    Raises:
        ConfigurationError: ``space`` is no mapping, or what is to be tuned is no plain function of its parameters.
    """
    wanted = _checked(space)

    def wrap(function: Callable[P, R]) -> Tunable[P, R]:
        check_plain_function(function)
        check_arguments(function, wanted)
        given = {
            "name": getattr(function, "__name__", "function"),
            "space": wanted,
            "objective": {"minimise": "value"},
            **specification,
        }
        return Tunable(function, given)

    return wrap

"""The selector that asks a function of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from pydantic import Field

from tradewind import plugins
from tradewind.errors import NoOfferError, SpecError
from tradewind.problem import Configuration, Instance, Nodes, Offer, Space, Value
from tradewind.selector.base import Selector
from tradewind.utils.user_functions import FunctionReference, UserFunction, UserFunctionError


class PythonSelectorSettings(plugins.Settings):
    """Settings of `PythonSelector`."""

    function: FunctionReference = Field(
        description="path/to/file.py:function (from the folder of the job YAML) or module:function"
    )
    parameters: tuple[str, ...] = Field(
        default=(), description="Parameters that it reads, besides the instance, the nodes and those with an attribute."
    )


class PythonSelector(Selector):
    """Asks your own function, which gets the values that choose machines, and the offers.

    The function takes a mapping of values by parameter (that of an instance is its offer) and the list of offers,
    the cheapest first; it returns one of them, or None where nobody sells what is asked for. It is called once for
    each choice of machines, and must answer the same each time. The offer counts once for each node where the space
    has nodes; without, the function may return ``offer.times(3)``.
    """

    Settings = PythonSelectorSettings
    settings: PythonSelectorSettings

    def __init__(self, *, settings: PythonSelectorSettings, offers: Sequence[Offer], space: Space) -> None:
        super().__init__(settings=settings, offers=offers, space=space)
        self._where = f"select: python {settings.function}"
        for name in settings.parameters:
            if name not in space.names:
                raise SpecError(f"{self._where}: there is no parameter {name!r}", hint=f"there is {_listed(space)}")
        instances = [p for p in space.parameters if isinstance(p, Instance)]
        self._instances = {p.name: p.offers for p in instances}
        self._nodes = [p.name for p in space.parameters if isinstance(p, Nodes)]
        every = {offer.key: offer for p in instances for offer in p.offers.values()}
        every |= {offer.key: offer for offer in offers}
        self._sold = {offer.key: offer for offer in sorted(every.values(), key=lambda o: (o.price_per_hour, o.key))}
        self._function = UserFunction(settings.function, Path.cwd(), passed=NoOfferError)
        self._kept: dict[tuple[tuple[str, Value], ...], Offer | str] = {}

    @cached_property
    def machine_parameters(self) -> tuple[str, ...]:
        """Names of the parameters that the function gets."""
        usual = super().machine_parameters
        return tuple(name for name in self.space.names if name in usual or name in self.settings.parameters)

    def resolve(self, configuration: Configuration) -> Offer:
        """Find the offer for a configuration, with its number of nodes.

        Raises:
            NoOfferError: The function knows none, or nothing is sold at all.
            SpecError: The function fails, or returns something else than one of the offers.
        """
        key = tuple((name, configuration[name]) for name in self.machine_parameters if name in configuration)
        if key not in self._kept:
            self._kept[key] = self._answer(dict(key))
        answer = self._kept[key]
        if isinstance(answer, str):
            raise NoOfferError(answer, hint=f"{self.settings.function} decides")
        return answer

    def _answer(self, values: Mapping[str, Value]) -> Offer | str:
        if not self._sold:
            return "the catalogue sells nothing"
        asked = {
            name: self._instances[name].get(str(value), value) if name in self._instances else value
            for name, value in values.items()
        }
        try:
            found = self._function(asked, list(self._sold.values()))
        except NoOfferError as error:
            return error.message
        except UserFunctionError as error:
            raise SpecError(f"{self._where}: {error}") from None
        words = " ".join(f"{name}={value}" for name, value in values.items())
        if found is None:
            return f"no provider sells {words}"
        if not isinstance(found, Offer) or self._sold.get(found.times(1).key) != found.times(1):
            raise SpecError(
                f"{self._where}: for {words} it returned {found!r:.200}",
                hint="return one of the offers that it was given, or None; a CSV catalogue adds offers of your own",
            )
        nodes = [int(values[name]) for name in self._nodes if name in values]
        if not nodes:
            return found
        if found.nodes != 1 or len(nodes) > 1:
            raise SpecError(f"{self._where}: {words}: more than one of them chooses the number of machines")
        return found.times(nodes[0])


def _listed(space: Space) -> str:
    return ", ".join(space.names)

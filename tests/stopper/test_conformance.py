"""Every installed stopper against the suite, by its entry point."""

from __future__ import annotations

import pytest

from tradewind import plugins
from tradewind.stopper.base import Stopper
from tradewind.testing.stoppers import StopperConformance


@pytest.fixture(params=plugins.names("stopper"), autouse=True)
def part(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestStoppers(StopperConformance):
    name = ""

    @pytest.fixture(autouse=True)
    def _named(self, part: str) -> None:
        self.name = part

    def make(self) -> Stopper:
        made = plugins.create("stopper", self.name, {})
        assert isinstance(made, Stopper)
        return made

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tradewind.engine.state_machine.budget import Ledger
from tradewind.errors import BudgetError

MONEY = st.floats(0, 5, allow_nan=False).map(lambda x: round(x, 9))


def test_reserving_takes_from_what_is_free() -> None:
    ledger = Ledger(1.0, spent=0.25)
    ledger.reserve("a", 0.5)
    assert (ledger.spent, ledger.reserved, ledger.free) == (0.25, 0.5, 0.25)
    ledger.settle("a", 0.1)
    assert (ledger.spent, ledger.reserved, ledger.free) == (0.35, 0.0, 0.65)


def test_more_than_is_free_cannot_be_reserved() -> None:
    ledger = Ledger(1.0)
    ledger.reserve("a", 0.7)
    with pytest.raises(BudgetError, match=r"\$0\.400 for b is more than the \$0\.300 left"):
        ledger.reserve("b", 0.4)
    with pytest.raises(BudgetError, match="has a reservation already"):
        ledger.reserve("a", 0.1)
    with pytest.raises(BudgetError, match="cannot reserve"):
        ledger.reserve("c", -1)
    assert ledger.reserved == 0.7


def test_without_a_limit_everything_can_be_reserved() -> None:
    ledger = Ledger(None)
    ledger.reserve("a", 1e6)
    assert ledger.free is None


def test_a_run_that_costs_more_than_reserved_raises_its_reservation() -> None:
    ledger = Ledger(1.0)
    ledger.reserve("a", 0.2)
    assert ledger.meter("a", 0.2)
    assert not ledger.meter("a", 0.3)
    assert (ledger.reserved, ledger.free, ledger.metered) == (0.3, 0.7, 0.3)


def test_a_run_of_an_earlier_process_keeps_its_reservation_even_beyond_the_limit() -> None:
    ledger = Ledger(0.1, spent=0.05)
    ledger.take_over("a", 0.2)
    assert ledger.free == 0
    assert ledger.holds("a")


def test_a_tenth_of_a_cent_a_thousand_times_is_exact() -> None:
    ledger = Ledger(1.0)
    for i in range(1000):
        ledger.reserve(str(i), 0.001)
        ledger.settle(str(i), 0.001)
    assert ledger.spent == 1.0
    assert ledger.free == 0.0


class LedgerMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order, the books balance."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(10.0)
        self.open: dict[str, float] = {}
        self.paid: list[float] = []
        self.count = 0

    @rule(usd=MONEY)
    def reserve(self, usd: float) -> None:
        free = self.ledger.free
        assert free is not None
        self.count += 1
        name = str(self.count)
        if usd <= free:
            self.ledger.reserve(name, usd)
            self.open[name] = usd
        else:
            with pytest.raises(BudgetError):
                self.ledger.reserve(name, usd)

    @precondition(lambda self: self.open)
    @rule(share=st.floats(0, 1), data=st.data())
    def meter_and_settle(self, share: float, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        usd = round(self.open.pop(name) * share, 9)
        assert self.ledger.meter(name, usd)
        self.ledger.settle(name, usd)
        self.paid.append(usd)

    @invariant()
    def books_balance(self) -> None:
        assert self.ledger.reserved >= 0
        assert self.ledger.spent == pytest.approx(sum(self.paid), abs=1e-8)
        assert self.ledger.spent + self.ledger.reserved <= 10.0 + 1e-9


TestLedgerMachine = LedgerMachine.TestCase


@pytest.mark.slow
@given(amounts=st.lists(MONEY, max_size=40))
def test_the_order_of_settling_does_not_change_the_sum(amounts: list[float]) -> None:
    forward, backward = Ledger(None), Ledger(None)
    for i, usd in enumerate(amounts):
        forward.settle(str(i), usd)
    for i, usd in enumerate(reversed(amounts)):
        backward.settle(str(i), usd)
    assert forward.spent == backward.spent

"""Asks the searcher, and the selector for the price of what it proposes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tradewind.engine.state_machine.events import NothingProposed, PricedProposal, ProposalsMade
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.errors import NoOfferError, PluginError
from tradewind.plugins import Settings
from tradewind.problem import Configuration, Problem, Proposal
from tradewind.searcher.base import NothingLeft, PricesAborts, Searcher, SearchState
from tradewind.store.base import Store, StudyRow


class FixedSearcher(Searcher, PricesAborts):
    """Proposes one configuration, even if it was run before, and nothing after it.

    Args:
        problem: The problem.
        configuration: What to run.
        asked: It was proposed by an earlier process, and its trial is on its way.
    """

    def __init__(self, problem: Problem, configuration: Configuration, *, asked: bool = False) -> None:
        super().__init__(settings=Settings(), problem=problem)
        self._configuration = configuration
        self._asked = asked

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """The configuration at the first call; after it nothing."""
        if self._asked:
            return NothingLeft("the run has ended")
        self._asked = True
        return [Proposal(self._configuration, repeat=True)]


def ask_searcher(machine: SearchMachine, searcher: Searcher, count: int) -> ProposalsMade | NothingProposed:
    """Ask for up to ``count`` proposals.

    Args:
        machine: The search; it knows what is pending and what is left.
        searcher: Who is asked.
        count: How many at most.

    Returns:
        The answer as an event for the machine.

    Raises:
        PluginError: A proposal's cap is not a number.
    """
    state = SearchState(
        pending=machine.history.pending,
        proposed=machine.history.next_number,
        money_left=machine.ledger.free,
        trials_left=machine.trials_left,
        seconds_left=machine.seconds_left,
    )
    answer = searcher.ask(state, count)
    if isinstance(answer, NothingLeft):
        return NothingProposed(answer.reason, answer.final)
    if not answer:
        return NothingProposed("the searcher proposed nothing, and gave no reason", final=False)
    for proposal in answer:
        for cap in (proposal.abort_cost, proposal.abort_time):
            if cap is not None and math.isnan(cap):
                who = searcher.name or type(searcher).__name__
                raise PluginError(f"the searcher {who} wants {proposal.configuration} cut short at nan")
    return ProposalsMade([price_proposal(machine.problem, proposal) for proposal in answer[:count]])


def searcher_state_fields(searcher: Searcher) -> dict[str, Any]:
    """The fields of a study that keep what a searcher cannot learn again from the trials."""
    state = searcher.state()
    return {"searcher_state": {"searcher": searcher.name, "state": dict(state)}} if state else {}


def refresh_held_study(store: Store, study: StudyRow) -> StudyRow:
    """A study's row as it is now that we hold it: whoever held it before may have gone on after it was found."""
    now = store.study(study.id)
    return replace(study, elapsed=now.elapsed, searcher_state=now.searcher_state)


def restore_searcher_state(searcher: Searcher, study: StudyRow) -> None:
    """Give a searcher back what `searcher_state_fields` kept, unless another searcher wrote it."""
    kept = study.searcher_state
    if kept.get("searcher") == searcher.name and kept.get("state"):
        searcher.restore(kept["state"])


def price_proposal(problem: Problem, proposal: Proposal) -> PricedProposal:
    """Ask the selector for the offer of a proposal."""
    try:
        offer = problem.resolver.resolve(proposal.configuration)
    except NoOfferError as error:
        return PricedProposal(proposal, None, proposal.configuration.key, str(error))
    return PricedProposal(proposal, offer, problem.key_of(offer, proposal.configuration, proposal.fidelity))

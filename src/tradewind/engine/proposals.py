"""Asks the searcher, and the selector for the price of what it proposes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tradewind.engine.state_machine.events import NothingProposed, PricedProposal, ProposalsMade
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.errors import ConfigurationError, NoOfferError, PluginError
from tradewind.plugins import Settings
from tradewind.problem import ENQUEUED, Configuration, Problem, Proposal, Trial, TrialState, Value
from tradewind.problem.completion import completed
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


def user_proposal(problem: Problem, values: Mapping[str, Value]) -> PricedProposal:
    """The proposal of a configuration that the user wants tried before all that the searcher proposes.

    Args:
        problem: The problem.
        values: Values of some or all parameters; `completed` says what the others get.

    Raises:
        ConfigurationError: They are no configuration of the space, or nobody sells it.
    """
    if not isinstance(values, Mapping):
        raise ConfigurationError(
            f"{values!r} is no configuration", hint="give the values by the names of their parameters: {'workers': 4}"
        )
    configuration = completed(problem, values)
    priced = price_proposal(problem, Proposal(configuration, why={"stage": ENQUEUED}))
    if priced.offer is None:
        raise ConfigurationError(f"{configuration} cannot be tried: {priced.reason}")
    return priced


def known_trial_words(trial: Trial) -> str:
    """The words that a configuration is not tried again, as it has a trial already."""
    if trial.state.ended:
        return f"{trial.configuration} was tried already: trial {trial.number} {_ENDS.get(trial.state, 'has ended')}"
    return f"{trial.configuration} is on its way already, as trial {trial.number}"


_ENDS = {TrialState.SUCCEEDED: "succeeded", TrialState.FAILED: "failed", TrialState.ABORTED: "was cut short"}

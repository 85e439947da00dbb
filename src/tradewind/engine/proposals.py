"""Asks the searcher, and the selector for the price of what it proposes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tradewind.engine.state_machine.events import NothingProposed, PricedProposal, ProposalsMade
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.errors import BudgetError, ConfigurationError, NoOfferError, PluginError
from tradewind.plugins import Settings
from tradewind.problem import ENQUEUED, Configuration, Problem, Proposal, Trial, TrialState, Value
from tradewind.problem.completion import completed
from tradewind.searcher.base import NothingLeft, PricesAborts, Searcher, SearchState
from tradewind.store.base import Store, StudyRow
from tradewind.utils.units import count

if TYPE_CHECKING:
    from tradewind.problem.job_spec.spec import JobSpec


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


def ask_searcher(machine: SearchMachine, searcher: Searcher, most: int) -> ProposalsMade | NothingProposed:
    """Ask for some proposals.

    Args:
        machine: The search; it knows what is pending and what is left.
        searcher: Who is asked.
        most: How many at most.

    Returns:
        The answer as an event for the machine.

    Raises:
        PluginError: A proposal's cap is not a number.
    """
    state = search_state(machine)
    if reason := searcher.why_stop(state):
        return NothingProposed(reason, final=not state.pending)
    answer = searcher.ask(state, most)
    if isinstance(answer, NothingLeft):
        return NothingProposed(answer.reason, answer.final)
    if not answer:
        return NothingProposed("the searcher proposed nothing, and gave no reason", final=False)
    for proposal in answer:
        for cap in (proposal.abort_cost, proposal.abort_time):
            if cap is not None and math.isnan(cap):
                who = searcher.name or type(searcher).__name__
                raise PluginError(f"the searcher {who} wants {proposal.configuration} cut short at nan")
    return ProposalsMade([price_proposal(machine.problem, proposal) for proposal in answer[:most]])


def search_state(machine: SearchMachine) -> SearchState:
    """Make what a searcher is told of pending trials and of the budget."""
    return SearchState(
        pending=machine.history.pending,
        proposed=machine.history.next_number,
        money_left=machine.ledger.free,
        trials_left=machine.trials_left,
        seconds_left=machine.seconds_left,
    )


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


def enqueued_proposal(problem: Problem, machine: SearchMachine, values: Mapping[str, Value]) -> PricedProposal | Trial:
    """Find what `enqueue` of a configuration adds to a search: a new proposal, or the trial that there is of it.

    Raises:
        ConfigurationError: They are no configuration of the space, nobody sells it, or the search has ended.
    """
    priced = user_proposal(problem, values)
    if (known := machine.history.of_key(priced.key)) is not None:
        return known
    if (why := machine.why_closed) is not None:
        raise ConfigurationError(f"{priced.proposal.configuration} cannot be enqueued: {why}")
    return priced


@dataclass(frozen=True, slots=True)
class FirstProposals:
    """Configurations that the user wants tried before all that the searcher proposes.

    Attributes:
        proposals: In the order in which they are tried, by the user's words for each.
        known: Of what was left out, by its words, why: it has a trial, or stands there twice.
    """

    proposals: Mapping[str, PricedProposal]
    known: Mapping[str, str]


def first_proposals(
    spec: JobSpec, problem: Problem, history: Sequence[Trial], more: Sequence[tuple[str, Mapping[str, Value]]] = ()
) -> FirstProposals:
    """Price what a specification, and who starts its search, want tried first.

    Args:
        spec: The specification.
        problem: Its problem.
        history: The trials of the study.
        more: The user's words for further ones, each with values of some or all parameters.

    Raises:
        BudgetError: The budget does not leave so many trials.
        ConfigurationError: One of ``more`` is no configuration of the space, or nobody sells it.
        SpecError: The same of the specification's own, with its line.
    """
    known = {trial.key: trial for trial in history if trial.state.informs or not trial.state.ended}
    found: dict[str, PricedProposal] = {}
    left_out: dict[str, str] = {}
    places = {".".join(map(str, place)): place for place in spec.wanted_first}
    own = dict(zip(places, spec.wanted_first.values(), strict=True))
    for words, values in [*own.items(), *more]:
        try:
            priced = user_proposal(problem, values)
        except ConfigurationError as error:
            if words in own:
                raise spec.error(places[words], f"{words}: {error.message}", error.hint) from None
            raise ConfigurationError(f"{words}: {error.message}", hint=error.hint) from None
        twin = next((other for other, one in found.items() if one.key == priced.key), None)
        if priced.key in known:
            left_out[words] = known_trial_words(known[priced.key])
        elif twin is not None:
            left_out[words] = f"the same trial as {twin}, and not tried twice"
        else:
            found[words] = priced
    most = spec.budget.trials
    if most is not None and len(found) > (left := max(0, most - len(history))):
        wanted, budget = count(len(found), "trial"), count(most, "trial")
        raise BudgetError(
            f"{', '.join(found)}: {wanted} to be tried first, and the budget of {budget} leaves {left}",
            hint="raise budget.trials, or leave some out",
        )
    return FirstProposals(found, left_out)


def known_trial_words(trial: Trial) -> str:
    """The words that a configuration is not tried again, as it has a trial already."""
    if trial.state.ended:
        return f"{trial.configuration} was tried already: trial {trial.number} {_ENDS.get(trial.state, 'has ended')}"
    return f"{trial.configuration} is on its way already, as trial {trial.number}"


_ENDS = {TrialState.SUCCEEDED: "succeeded", TrialState.FAILED: "failed", TrialState.ABORTED: "was cut short"}

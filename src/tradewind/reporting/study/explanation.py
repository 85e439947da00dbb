"""Says in words which configuration to use, why, how sure that is, and what to do next."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tradewind.engine.state_machine.early_stopping import estimated_savings
from tradewind.problem import COST, RUNTIME, Run, TrialState
from tradewind.problem.offer import interruptions_note
from tradewind.reporting.study.bill import bill_sentences
from tradewind.reporting.study.data import StudyData, several_valued
from tradewind.reporting.study.effects import ParameterEffects, parameter_effects
from tradewind.reporting.words import (
    choice_words,
    comparative,
    opposite,
    percent,
    reason_key,
    value_words,
)
from tradewind.searcher.stopping import ALL_TRIED, split_reason
from tradewind.store.base import IMPORTED, CodeVersion
from tradewind.utils.units import count, format_bill, format_duration, format_money

_MOST_VERSIONS = 4
_MOST_TAKEN = 6


def explain_choice(data: StudyData, effects: ParameterEffects | None = None, *, by_command: bool = True) -> list[str]:
    """Sentences about a study, the most important first; each is true of the trials that are stored.

    Args:
        data: The study.
        effects: Effects of the parameters, where the caller has computed them already.
        by_command: True where ``tradewind tune`` goes on with the study; a server or a cluster does so by itself.
    """
    if not len(data):
        return ["Nothing has been tried yet.", *_next(data, by_command)]
    effects = effects or parameter_effects(data)
    changed = code_versions_sentence(data.code)
    use, *took = _choice(data)
    sentences = [use, *bill_sentences(data), *took, *_margin(data), *([changed] if changed else [])]
    sentences += [*_certainty(data), *_spending(data)]
    sentences += [*_parameters(data, effects), *_failures(data), *_next(data, by_command)]
    return sentences


# ---------------------------------------------------------------------- the choice


def _choice(data: StudyData) -> list[str]:
    row = data.best_row
    if row is None:
        return [_no_choice(data)]
    metric = data.goal.objective.metric
    runtime, cost = float(data.runtime[row]), float(data.cost[row])
    sentences = [f"Use {_chosen(data, row) or 'the only configuration'} (trial {data.number[row]})."]
    seen = data.best.observation if data.best is not None else None
    expected = seen is not None and seen.expected
    if expected:
        took = f"is expected to take {format_duration(runtime)} and cost {format_bill(cost)} with its interruptions"
    else:
        took = f"took {format_duration(runtime)} and cost {format_bill(cost, 'this run')}"
    if metric in (COST, RUNTIME):
        took = f"It {took}"
    else:
        took = f"It reached {metric} {value_words(metric, float(data.objective[row]))}, {took}"
    deadline = data.goal.constraints.deadline
    if deadline:
        left = deadline - runtime
        took += (
            f", {format_duration(left)} ({percent(left / deadline)}) before the deadline of {format_duration(deadline)}"
            if left >= 0
            else f", {format_duration(-left)} past the deadline of {format_duration(deadline)}"
        )
    machines = data.best.offer if data.best is not None else None
    if machines is not None:
        named = f"; {machines.nodes} × {machines.instance_type} of {machines.provider} at"
        # Where the machines were chosen, the sentence before has named them.
        took += "; the machines cost" if data.machine_parameters.names else named
        took += f" {format_money(machines.hourly)} per hour"
    note = "" if machines is None or expected else interruptions_note([machines])
    return [*sentences, took + ".", *([note] if note else [])]


def _chosen(data: StudyData, row: int) -> str:
    """The machines of a trial first, then the parameters that led to them, and its settings."""
    best = data.best if row == data.best_row else None
    offer = data.offer(row) if best is None else best.offer
    return choice_words(data.configuration(row), offer, data.machine_parameters)


def _no_choice(data: StudyData) -> str:
    ended, whole = int(data.ended.sum()), int((data.ended & data.whole).sum())
    if not ended:
        return f"No trial has ended yet; {count(len(data), 'trial')} on the way."
    start = "There is no configuration to recommend: "
    if not whole:
        return f"{start}none of the {count(ended, 'ended trial')} was on the whole input."
    on = " on the whole input" if whole < ended else ""
    if whole == 1:
        return f"{start}the only ended trial{on} did not keep every constraint."
    return f"{start}none of the {count(whole, 'ended trial')}{on} kept every constraint."


def _margin(data: StudyData) -> list[str]:
    """Sentences that compare the best trial with the next, the median and the first one."""
    ranking = data.ranking
    best = data.best_row
    if best is None:
        return []
    objective = data.goal.objective
    keys = data.words["key"]
    others = ranking[keys[ranking] != keys[best]]
    sentences = []
    if len(others):
        second = int(others[0])
        a, b = data.usual(best), data.usual(second)
        by = _by(a, b, opposite(objective)) if b != a else f"just as good in {objective.metric}"
        if objective.better(b, a):
            by = f"{_by(a, b, comparative(objective))}, but likelier to miss the deadline or another bound"
        sentences.append(
            f"The next best is trial {data.number[second]}: {_chosen(data, second)}, "
            f"{value_words(objective.metric, b)}, {by}."
        )
    elif len(ranking) == 1:
        tried = len(np.unique(keys))
        words = "This is the only configuration that was tried" if tried == 1 else "No other configuration was feasible"
        sentences.append(f"{words}, so there is nothing to compare it with.")
    if len(ranking) >= 4:
        a, middle = float(data.objective[best]), float(np.median(data.objective[ranking]))
        if a != middle:
            by = _by(middle, a, comparative(objective))
            than = "as" if by.endswith("as much") else "than"
            sentences.append(f"It is {by} {than} the median of the feasible trials.")
    return sentences


def _by(reference: float, value: float, word: str) -> str:
    """``12 % cheaper``; plain numbers where a ratio means nothing."""
    if reference > 0 and value >= 0 and math.isfinite(value / reference):
        share = abs(value - reference) / reference
        return (
            f"{value / reference:.1f} times as much" if share > 2 and value > reference else f"{percent(share)} {word}"
        )
    return f"{abs(value - reference):.4g} {word}"


# ---------------------------------------------------------------------- how sure


def _certainty(data: StudyData) -> list[str]:
    measured = int(data.measured.sum())
    best = data.best_row
    if best is None or not measured:
        return []
    keys = data.words["key"]
    tried = len(np.unique(keys[data.ended & data.whole]))
    sentence = "1 configuration was tried" if tried == 1 else f"{tried:,} different configurations were tried"
    size = data.space_size
    if size and tried < size and data.study.reason.startswith(ALL_TRIED):
        # Several configurations that come to one offer are one trial.
        rest = "the other one comes" if size - tried == 1 else f"the other {size - tried:,} come"
        sentence += f"; {rest} to the same offers, or cannot be had"
    elif size:
        sentence += f" of {size:,} ({percent(min(1.0, tried / size))} of the space)"
    parts = int((data.ended & ~data.whole).sum())
    if parts:
        sentence += f", after {count(parts, 'run')} on parts of the input"
    near = _neighbours(data, best)
    if near:
        sentence += f", {near} of them one setting away from this one; none was feasible and better"
    sentences = [sentence + "."]
    same = np.flatnonzero((keys == keys[best]) & data.measured)
    if len(same) > 1:
        metric = data.goal.objective.metric
        low, high = (
            value_words(metric, float(one)) for one in (data.objective[same].min(), data.objective[same].max())
        )
        ran = f"{low} each time"
        if low != high:
            ran = f"between {low} and {high}, {value_words(metric, data.usual(best))} on average"
        sentences += [f"It ran {len(same)} times, {ran}.", *variation_words(data)]
    else:
        sentences.append(f"It ran once: how much its {data.goal.objective.metric} varies is not known.")
    return sentences


def variation_words(data: StudyData) -> list[str]:
    """A sentence on the figures that vary between runs of one configuration, where any does that matters."""
    varied = [] if data.standing is None else data.standing.variations
    if not varied:
        return []
    words = []
    for one in varied:
        much = percent(one.spread) if one.relative else f"{one.spread:.2g}"
        much = much if much.startswith("under") else f"about {much}"
        words.append(f"the {'run time' if one.metric == RUNTIME else one.metric} varies by {much}")
    listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return [
        f"From run to run of one configuration {listed}, so its runs count together: the best single run of all may "
        "be a lucky one."
    ]


def code_versions_sentence(versions: Sequence[CodeVersion]) -> str:
    """``The program's files changed: 4 trials (0 to 3) ran version a1b2, ...``, or empty where they did not.

    Args:
        versions: The versions that trials ran.
    """
    if len(versions) < 2:
        return ""
    each = [
        f"{count(len(one.trials), 'trial')} ({_numbers(one.trials)}) ran version {one.digest}"
        for one in versions[:_MOST_VERSIONS]
    ]
    more = len(versions) - _MOST_VERSIONS
    each += [f"and {count(more, 'more version')} after them"] if more > 0 else []
    return f"The program's files changed between trials, so compare them with care: {', '.join(each)}."


def _numbers(trials: Sequence[int]) -> str:
    return f"{trials[0]}" if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"


def _neighbours(data: StudyData, best: int) -> int:
    """Ended trials on the whole input that differ from the best in exactly one parameter."""
    different = np.zeros(len(data), dtype=np.int64)
    for column in data.parameters.values():
        if column.numbers is not None:
            here = column.numbers[best]
            different += ~((column.numbers == here) | (np.isnan(column.numbers) & np.isnan(here)))
        else:
            different += column.values != column.values[best]
    return len(np.unique(data.words["key"][(different == 1) & data.ended & data.whole]))


# ---------------------------------------------------------------------- money


def early_stopping_savings(data: StudyData) -> tuple[int, float]:
    """Count the trials that were stopped early, and estimate the USD that this saved.

    The estimate is `tradewind.engine.state_machine.early_stopping.estimated_savings`.
    """
    rows = np.flatnonzero(data.early)
    finished = data.runtime[data.having(TrialState.SUCCEEDED) & data.whole]
    hourly = data.floats["price_per_hour"][rows] * data.nodes[rows]
    pairs = list(zip(data.runtime[rows].tolist(), np.nan_to_num(hourly).tolist(), strict=True))
    return len(rows), estimated_savings(finished.tolist(), pairs)


def early_stopping_sentence(data: StudyData) -> str:
    """``6 trials were stopped early, which saved about $0.00012.``, or an empty text."""
    number, dollars = early_stopping_savings(data)
    if not number:
        return ""
    words = f"{count(number, 'trial')} {'was' if number == 1 else 'were'} stopped early"
    return f"{words}, which saved about {format_money(dollars)}." if dollars > 0 else f"{words}."


def _spending(data: StudyData) -> list[str]:
    summary, budget = data.summary, data.goal.budget
    ended = int(data.ended.sum())
    money = f"{format_money(summary.spent)} in total on {count(ended, 'ended trial')}"
    simulated = "The runs were simulated and nothing was paid; they would have cost "
    sentence = (simulated if data.goal.simulated else "The search spent ") + money
    if budget.dollars is not None:
        sentence += f", of a budget of {format_money(budget.dollars)}"
    parts = [
        f"{format_money(float(data.spent[mask].sum()))} on {int(mask.sum()):,} {state.value}"
        for state in (TrialState.FAILED, TrialState.ABORTED, TrialState.LOST)
        if (mask := data.having(state)).any()
    ]
    if parts:
        sentence += f" ({', '.join(parts)})"
    sentences = [sentence + "."]
    on_the_way = len(data) - ended
    if on_the_way:
        verb = "is" if on_the_way == 1 else "are"
        sentences.append(f"{count(on_the_way, 'trial')} {verb} on the way or waiting.")
    return sentences


# ---------------------------------------------------------------------- what mattered, what failed

_MOST_EFFECTS = 3


def _parameters(data: StudyData, effects: ParameterEffects | None) -> list[str]:
    """A sentence on what the runs tell of the parameters; nothing where they do not tell."""
    if effects is None:
        return []
    metric = data.goal.objective.metric
    parts = []
    if strong := effects.of("tells")[:_MOST_EFFECTS]:
        told = (f"{one.parameter}={one.words(metric)}" for one in strong)
        parts.append(f"what mattered for the {'run time' if metric == RUNTIME else metric}: {'; '.join(told)}")
    if weak := [one.parameter for one in effects.of("hardly")]:
        parts.append(f"hardly at all: {', '.join(weak[:4])}")
    if same := several_valued(data.study.spec, effects.constant):
        parts.append(f"never varied, so that nothing is known of it: {', '.join(same[:4])}")
    words = "; ".join(parts)
    return [f"{words[0].upper()}{words[1:]}."] if words else []


def taken_runs_sentence(taken: Sequence[Run]) -> str:
    """``2 runs were ended so that tenant physics got their places: ...``, or empty where none was.

    It names them, with what each had cost and who pays that.

    Args:
        taken: The runs that were taken.
    """
    notes = [run.preemption for run in taken if run.preemption is not None]
    if not notes:
        return ""
    tenants = sorted({one.tenant for one in notes if one.tenant})
    unnamed = sum(not one.tenant for one in notes)
    takers = [f"{'tenant' if len(tenants) == 1 else 'tenants'} {', '.join(tenants)}"] if tenants else []
    takers += ["another tenant" if unnamed == 1 else "other tenants"] if unnamed else []
    who = " and ".join(takers)
    places = "its place" if len(taken) == 1 else "their places"
    which = [_taken_run_words(run) for run in taken[:_MOST_TAKEN]]
    if len(taken) > len(which):
        which.append(f"{len(taken) - len(which)} more")
    others = sum(one.cost for one in notes)
    paid = f"; {format_money(others)} of what they had cost is not paid by this study" if others > 0 else ""
    was, trial = ("was", "its trial runs") if len(taken) == 1 else ("were", "their trials run")
    return (
        f"{count(len(taken), 'run')} {was} ended so that {who} got {places}: {trial} again{paid}. {'; '.join(which)}."
    )


def _taken_run_words(run: Run) -> str:
    """``Run 1 of trial 4: $0.250, which tenant maths pays``."""
    assert run.preemption is not None
    taken = run.preemption
    who = {"owner": "this study", "taker": taken.taker, "cluster": "nobody"}[taken.pays]
    why = f" ({taken.tenant or taken.taker} {taken.why})" if taken.why else ""
    return f"Run {run.attempt} of trial {run.trial}: {format_money(run.cost + taken.cost)}, which {who} pays{why}"


def _failures(data: StudyData) -> list[str]:
    sentences = [taken_runs_sentence(data.taken)] if data.taken else []
    for state, verb in ((TrialState.FAILED, "failed"), (TrialState.LOST, "lost through no fault of the configuration")):
        rows = np.flatnonzero(data.having(state))
        if not len(rows):
            continue
        sentence = f"{count(len(rows), 'trial')} {verb}"
        reasons = [text for row in rows if (text := data.reason(int(row)))]
        if reasons:
            alike, times = Counter(map(reason_key, reasons)).most_common(1)[0]
            text = next(text for text in reversed(reasons) if reason_key(text) == alike)
            known = len(reasons)
            of = f"; {times} of the last {known} because: " if known > 1 else ": "
            sentence += of + " ".join(text.split())[:300].rstrip(".")
        sentences.append(sentence + ".")
    early = early_stopping_sentence(data)
    if early:
        sentences.append(early)
    aborted = int((data.having(TrialState.ABORTED) & ~data.early).sum())
    if aborted:
        sentences.append(f"{count(aborted, 'trial')} {'was' if aborted == 1 else 'were'} cut short at a cap.")
    infeasible = int((data.infeasible & data.whole).sum())
    if infeasible and data.best_row is not None:
        sentences.append(f"{count(infeasible, 'trial')} ran to the end but broke a constraint.")
    return sentences


# ---------------------------------------------------------------------- what next


def _next(data: StudyData, by_command: bool) -> list[str]:
    study = data.study
    if study.state == "open" and data.summary.running_since is not None:
        return ["The search is still running."]
    sentences = []
    resumed = study.reason.endswith("the same command resumes")
    imported = study.reason == IMPORTED
    if study.reason and not resumed and not imported:
        why, _ = split_reason(study.reason.rstrip("."))
        sentences.append(f"It stopped because: {why}.")
    if imported:
        sentences.append(f"Its trials were imported{': tradewind tune goes on from them' if by_command else ''}.")
    elif resumed or (study.state == "open" and len(data)):
        sentences.append(
            "It was interrupted" + (": the same tradewind tune command resumes it." if by_command else ".")
        )
    elif data.unpaid:
        sentences.append("Raise the budget, or allow cheaper instance types.")
    elif not len(data) and not study.reason and by_command:
        sentences.append("tradewind tune starts the search.")
    if len(data) and data.best_row is None and data.ended.any():
        sentences += _nearest_miss(data)
    return sentences


def _nearest_miss(data: StudyData) -> list[str]:
    deadline = data.goal.constraints.deadline
    # A part of the input is quicker and cheaper than the whole: how far it missed says nothing of the configuration.
    rows = np.flatnonzero(data.infeasible & data.whole)
    if not len(rows):
        return _nothing_whole(data)
    late = rows[data.runtime[rows] > deadline] if deadline else rows[:0]
    if deadline and len(late) == len(rows):
        row = int(rows[np.argmin(data.runtime[rows])])
        runtime = float(data.runtime[row])
        return [
            f"The nearest miss is trial {data.number[row]}: {_chosen(data, row)} took "
            f"{format_duration(runtime)}, {format_duration(runtime - deadline)} past the deadline of "
            f"{format_duration(deadline)}, for {format_bill(float(data.cost[row]), 'this run')}.",
            f"Allow a deadline above {format_duration(runtime)}, or offer faster machines.",
        ]
    kept = np.setdiff1d(rows, late)
    row = int(kept[np.argmin(np.nan_to_num(data.loss[kept], nan=np.inf))])
    reason = data.reason(row)
    return [
        f"The nearest miss{' within the deadline' if deadline else ''} is trial {data.number[row]}: "
        + _chosen(data, row)
        + (f"; {reason}." if reason else "."),
        "Loosen that constraint, or widen the space.",
    ]


_FOR_WANT = re.compile(r"the \S+ left\b|budget of .+ (is used up|does not pay)|budget has \d")
"""Reasons of a search that had too little money, time or trials to go on."""

_INPUT_SCALING_IGNORED = "ignore the share of the input"
"""Reason, with advice, of a search that ended because a part of the input takes as long as the whole."""


def _nothing_whole(data: StudyData) -> list[str]:
    """Sentences that advise where no trial on the whole input ran to its end."""
    aborted, failed = data.having(TrialState.ABORTED), data.having(TrialState.FAILED)
    parts = int((data.having(TrialState.SUCCEEDED) & ~data.whole).sum())
    advice = _advice(data)
    end = f": {advice}." if advice else "."
    if parts:
        on = "a part" if parts == 1 else "parts"
        return [f"{count(parts, 'run')} on {on} of the input came to an end, none on the whole of it{end}"]
    if aborted.any():
        return [f"Every trial that did not fail was cut short{end}"]
    if not failed.any():
        return []  # what was lost is tried again
    return ["No trial ran to its end: look at tradewind logs, mend the job, then start anew with --fresh."]


def _advice(data: StudyData) -> str:
    """Words on what would have let a whole run end; empty where the reason of the end says what to do."""
    reason, failed = data.study.reason, data.having(TrialState.FAILED)
    aborted = data.having(TrialState.ABORTED) & ~data.early
    if _INPUT_SCALING_IGNORED in reason:
        return ""
    if (failed & data.whole).any() and not (aborted & data.whole).any():
        return "look at tradewind logs"
    short = ["the budget"] if _FOR_WANT.search(reason) else []
    limits = data.goal.constraints
    if aborted.any() and (limits.deadline or limits.thresholds):
        short.append("the deadline" if limits.deadline else "the bounds")
    if short:
        return f"raise {' or '.join(short)}"
    return "look at tradewind logs" if failed.any() else ""

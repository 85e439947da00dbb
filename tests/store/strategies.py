"""Trials and runs of every kind, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from tradewind.problem import (
    Configuration,
    Fault,
    Handle,
    Machine,
    Observation,
    Offer,
    Proposal,
    Run,
    RunState,
    Trial,
    TrialState,
    Usage,
)

# NUL comes from outputs that are no text.
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""Without halves of characters: those come back as question marks, as no answer could have them."""

names = st.text("abcdefghijklmnop_-0123456789", min_size=1, max_size=8)
figures = st.floats(allow_nan=True, allow_infinity=True)
finite = st.floats(min_value=0.0, max_value=1e15, allow_nan=False)
created = st.floats(min_value=0.0, max_value=2.5e11, allow_nan=False)
"""Up to the year 9892: no calendar shows what is after 9999, and no record has it."""

moments = st.none() | created
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | figures | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
data = st.dictionaries(words, documents, max_size=3)
facts = st.dictionaries(words, figures | words, max_size=3)
metrics = st.dictionaries(words, figures, max_size=3)

offers = st.builds(
    Offer,
    provider=words,
    instance_type=words,
    vcpu=figures,
    memory_gib=figures,
    price_per_hour=finite,
    region=words,
    spot=st.booleans(),
    nodes=st.integers(1, 10_000),
    facts=facts,
)
configurations = st.builds(
    Configuration,
    st.dictionaries(names, words | st.integers(-(2**53), 2**53) | finite | st.booleans(), max_size=5),
)
proposals = st.builds(
    Proposal,
    configurations,
    abort_cost=st.none() | figures,
    abort_time=st.none() | figures,
    fidelity=finite,
    repeat=st.booleans(),
    why=facts,
)
observations = st.builds(
    Observation,
    objective=st.none() | figures,
    cost=figures,
    runtime=figures,
    feasible=st.booleans(),
    censored=st.booleans(),
    metrics=metrics,
    profile=metrics,
    reason=words,
)
trials = st.builds(
    Trial,
    number=st.integers(0, 2**31 - 1),
    proposal=proposals,
    offer=offers,
    state=st.sampled_from(TrialState),
    key=names,
    observation=st.none() | observations,
    spent=finite,
    attempts=st.integers(0, 1000),
    created=created,
    started=moments,
    ended=moments,
)
runs = st.builds(
    Run,
    run_id=names,
    trial=st.just(0),
    attempt=st.integers(1, 100),
    state=st.sampled_from(RunState),
    reserved=finite,
    cost=finite,
    runtime=finite,
    handle=st.none() | st.builds(Handle, words, words, data),
    machines=st.lists(st.builds(Machine, words, words, data), max_size=3).map(tuple),
    started=moments,
    ended=moments,
    exit_code=st.none() | st.integers(-(2**31), 2**32),
    reason=words,
    fault=st.none() | st.sampled_from(Fault),
    usage=st.builds(Usage, st.none() | st.integers(0, 2**50), st.none() | figures, metrics),
    folder=words,
)

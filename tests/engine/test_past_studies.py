"""Earlier studies reach a searcher that learns from them, and only those that may."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.engine import past_studies as engine_past
from tradewind.engine.past_studies import learns_from_past, load_past_studies, missing_past_hint
from tradewind.engine.search_builder import new_study
from tradewind.problem import Configuration, Observation, Offer, Proposal, Trial, TrialState
from tradewind.problem.job_spec.spec import JobSpec, parse_spec
from tradewind.searcher.base import LearnsFromPast
from tradewind.searcher.random import RandomSearcher
from tradewind.store.base import Change, Store, StudyRow, this_process

YAML = """
name: {name}
job: {{command: "true {{{{ a }}}}", parameters: {{size: {size}}}}}
space: {{a: [1, 2, 3]}}
constraints: {{deadline: 60}}
searcher: {searcher}
past: {past}
"""


def spec(name: str = "mine", *, size: int = 1, past: str = "all", searcher: str = "random") -> JobSpec:
    return parse_spec(YAML.format(name=name, size=size, past=past, searcher=searcher), base=Path("/"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{tmp_path}/s.db")
    return made


def put(
    store: Store, of: JobSpec, created: float, *ended: float | None, suffix: str = "", name: str | None = None
) -> StudyRow:
    study = store.create_study(replace(new_study(of, suffix=suffix, name=name), created=created))
    offer = Offer("local", "here", 1, 1, 0.1)
    trials = [
        Trial(
            number,
            Proposal(Configuration({"a": 1 + number})),
            offer,
            TrialState.PENDING if when is None else TrialState.SUCCEEDED,
            f"k{number}",
            None if when is None else Observation(1.0, 1.0, 10.0, True),
            ended=when,
        )
        for number, when in enumerate(ended)
    ]
    store.write(study.id, Change(trials=trials))
    return study


def test_the_past_is_what_there_was_when_the_study_began(store: Store) -> None:
    put(store, spec(size=5), 10.0, 11.0, 25.0, None)
    put(store, spec("other"), 12.0, 13.0, suffix="/runs")
    put(store, spec("later"), 30.0, 31.0)
    put(store, spec("empty"), 11.0)
    mine = store.create_study(replace(new_study(spec()), created=20.0))
    found = load_past_studies(spec(), mine, store)
    assert [(study.name, len(study.trials)) for study in found] == [("mine", 1), ("other", 1)]
    assert found[0].values == {"size": 5}
    assert found[0].constraints.deadline == 60
    assert found[1].problem_key == spec("other").problem_key
    everything = load_past_studies(spec(), None, store)
    assert [(study.name, len(study.trials)) for study in everything] == [("mine", 2), ("other", 1), ("later", 1)]
    assert [study.name for study in load_past_studies(spec(), None, store, same_job=True)] == ["mine"]


def test_runs_that_were_played_count_when_they_were_known_and_not_when_they_would_have_ended(store: Store) -> None:
    """The clock of played runs is hours ahead: a study that was let go had ended all the same."""
    now = time.time()
    played = put(store, spec("played"), now - 10.0, now + 3_600.0, now + 7_200.0)
    store.release(played.id, store.hold(played.id, this_process(), 60.0))
    running = put(store, spec("running"), now - 5.0, now - 1.0, now + 7_200.0)
    token = store.hold(running.id, this_process(), 60.0)
    mine = store.create_study(new_study(spec()))
    expected = [("played", 2), ("running", 1)]
    assert [(study.name, len(study.trials)) for study in load_past_studies(spec(), mine, store)] == expected
    # What is let go later had not ended then: a study that is resumed sees what it saw.
    store.release(running.id, token)
    assert [(study.name, len(study.trials)) for study in load_past_studies(spec(), mine, store)] == expected


def test_studies_of_others_do_not_crowd_out_what_may_be_learned_from(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_past, "_MOST_READ", 2)
    put(store, spec("mine"), 1.0, 2.0)
    put(store, spec("mine"), 1.0, 2.0, suffix="/runs", name="mine.runs")
    put(store, spec("mine"), 1.0, 2.0, name="bob/mine")
    for number in range(3):
        put(store, spec(f"o{number}"), 3.0, 4.0, name=f"alice/o{number}")
        put(store, spec(f"o{number}"), 3.0, 4.0)
    for later in range(3):
        put(store, spec("mine"), 100.0 + later, 200.0)
    mine = store.create_study(replace(new_study(spec()), created=20.0))
    bobs = store.create_study(replace(new_study(spec(), name="bob/mine"), created=20.0))
    for found in (
        load_past_studies(spec(past="[mine]"), mine, store),
        load_past_studies(spec(), mine, store, same_job=True),
    ):
        assert [(study.name, len(study.trials)) for study in found] == [("mine", 2)]
    assert [(study.name, len(study.trials)) for study in load_past_studies(spec(), bobs, store)] == [("mine", 1)]


def test_parts_profiles_and_job_parameters_arrive_as_they_were_measured(store: Store) -> None:
    """Of an aborted run on a tenth of the input: its share, its bound, and what the kernel counted."""
    study = store.create_study(replace(new_study(spec(size=7)), created=1.0))
    seen = Observation(None, 0.5, 30.0, False, censored=True, metrics={"cost": 0.5}, profile={"cpu_seconds": 28.5})
    proposal = Proposal(Configuration({"a": 2}), fidelity=0.1)
    trial = Trial(0, proposal, Offer("local", "here", 1, 1, 0.1), TrialState.ABORTED, "k", seen, ended=2.0)
    store.write(study.id, Change(trials=[trial]))
    past = load_past_studies(spec(), None, store)[0]
    assert past.values == {"size": 7}
    assert past.parameters.fidelity == 1.0
    assert past.trials == (trial,)


def test_the_user_says_what_may_be_learned_from(store: Store) -> None:
    put(store, spec("a"), 1.0, 2.0)
    put(store, spec("b"), 1.0, 2.0)
    assert load_past_studies(spec(past="none"), None, store) == ()
    assert [study.name for study in load_past_studies(spec(past="[b, c]"), None, store)] == ["b"]


def test_many_studies_are_cut_to_the_newest(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_past, "_MOST_STUDIES", 2)
    monkeypatch.setattr(engine_past, "_MOST_TRIALS", 1)
    for number in range(4):
        put(store, spec(f"s{number}"), float(number), 5.0, 6.0)
    assert [(s.name, len(s.trials)) for s in load_past_studies(spec(), None, store)] == [("s2", 1), ("s3", 1)]


def test_single_runs_of_the_same_parameters_count_as_one_study(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is a study of its own: 64 of them would be all that a search could learn from."""
    monkeypatch.setattr(engine_past, "_MOST_STUDIES", 3)
    put(store, spec("old"), 0.0, 1.0)
    put(store, spec("search"), 1.0, 5.0, 6.0)
    for number in range(6):
        put(store, spec("app", size=number % 2), 10.0 + number, 20.0 + number)
    found = load_past_studies(spec(), None, store)
    assert [(one.name, one.values["size"], len(one.trials)) for one in found] == [
        ("search", 1, 2),
        ("app", 0, 3),
        ("app", 1, 3),
    ]
    assert [trial.number for trial in found[1].trials] == [0, 1, 2]
    assert [trial.ended for trial in found[1].trials] == [20.0, 22.0, 24.0]


def test_an_unreadable_study_is_named_and_left_out(store: Store) -> None:
    put(store, spec("good"), 1.0, 2.0)
    store.create_study(replace(new_study(spec("bad")), spec={"nothing": 1}))
    with pytest.warns(UserWarning, match="study bad is not learned from"):
        assert [study.name for study in load_past_studies(spec(), None, store)] == ["good"]


def test_only_a_searcher_that_learns_from_the_past_makes_the_engine_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not learns_from_past(spec())

    class Learner(RandomSearcher, LearnsFromPast):
        """Learns."""

    monkeypatch.setattr(plugins, "load", lambda _kind, _name: Learner)
    assert learns_from_past(spec())
    assert not learns_from_past(spec(past="none"))


def test_a_search_gets_its_past(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tradewind.engine import search_builder

    put(store, spec("a"), 1.0, 2.0)
    monkeypatch.setattr("tradewind.engine.past_studies.learns_from_past", lambda _spec: True)
    study = store.create_study(new_study(spec()))
    search = search_builder.build_search(spec(), study, store, tmp_path)
    assert [past.name for past in search.parts.searcher.problem.past] == ["a"]


@pytest.mark.parametrize(
    ("past", "searcher", "told"),
    [
        ("[jbo-a]", "tradewind", "yet of 'jbo-a', so that nothing is learned from it (did you mean 'job-a'?)"),
        ("[job-a, ran, mine]", "tradewind", ""),
        ("[zzz, yyy]", "tradewind", "yet of 'zzz' and 'yyy', so that nothing is learned from them (known: job-a, ran)"),
        ("all", "tradewind", ""),
        ("none", "tradewind", ""),
        ("[jbo-a]", "random", ""),
    ],
)
def test_a_job_that_nothing_is_stored_of_is_told_of(store: Store, past: str, searcher: str, told: str) -> None:
    put(store, spec("job-a"), 10.0, 11.0)
    put(store, spec("ran"), 20.0, 21.0, name="ran.runs")
    assert missing_past_hint(spec(past=past, searcher=searcher), store) == (told and f"past: nothing is stored {told}")


def test_where_no_other_job_is_stored_there_is_none_to_name(store: Store) -> None:
    put(store, spec("mine"), 10.0, 11.0)
    assert missing_past_hint(spec(past="[gone]", searcher="tradewind"), store).endswith("(known: no other job)")


def test_a_replay_learns_neither_from_the_study_that_answers_it_nor_is_it_a_past(store: Store) -> None:
    def replayed(records: str) -> JobSpec:
        text = YAML.format(name="mine", size=1, past="all", searcher="random")
        runner = f"deploy: {{runner: {{use: replay, records: {records}}}}}\n"
        return parse_spec(text + runner, base=Path("/"))

    real, replay = spec(), replayed("/r.jsonl")
    put(store, real, 1.0, 2.0)
    assert load_past_studies(replay, None, store) == ()
    assert [past.name for past in load_past_studies(spec("other", size=2), None, store)] == ["mine"]
    put(store, replay, 3.0, 4.0)
    assert len(load_past_studies(real, None, store)) == 1, "the copies are no second experience"
    assert len(load_past_studies(replay, None, store)) == 1, "its own earlier runs"

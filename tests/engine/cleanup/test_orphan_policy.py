"""What is left over: the rules, and what holds for all findings and rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.engine.cleanup.orphan_policy import (
    KnownRecords,
    KnownRun,
    OrphanDecision,
    OrphanFate,
    OrphanFinding,
    OrphanKind,
    OwningStudy,
    decide_fate,
)

NOW = 1_000_000.0
OURS = OwningStudy(1, "sort")
HELD = OwningStudy(2, "busy", "host:17")
OWNERS = {"tw-ours": OURS, "tw-held": HELD}


def machines(
    run_id: str = "tw-ours-00000-1", owner: str = "tw-ours", expires: float | None = NOW + 60
) -> OrphanFinding:
    return OrphanFinding(OrphanKind.MACHINES, "cloud", run_id, owner, expires)


def fate_of(finding: OrphanFinding, row: KnownRun | None = None, **options: float | bool) -> tuple[OrphanFate, str]:
    rows = {finding.run_id: row} if row is not None else {}
    decided = decide_fate(finding, KnownRecords(OWNERS, rows), NOW, **options)  # type: ignore[arg-type]
    return decided.fate, decided.why


OPEN, OVER = KnownRun("tw-ours", ended=False, started=NOW - 30), KnownRun("tw-ours", ended=True, started=NOW - 30)


@pytest.mark.parametrize(
    ("finding", "row", "fate", "why"),
    [
        (machines(), None, OrphanFate.DESTROY, "no row"),
        (machines(), OVER, OrphanFate.DESTROY, "has ended"),
        (machines(), OPEN, OrphanFate.KEEP, "tradewind down ends it"),
        (machines(expires=NOW - 90), OPEN, OrphanFate.SETTLE, "nobody watches it, and it expired 1m 30s ago"),
        (machines(expires=None), OPEN, OrphanFate.KEEP, "open"),
        (machines(owner="tw-held", expires=NOW - 90), None, OrphanFate.KEEP, "being run by host:17"),
        (machines(owner="tw-other"), None, OrphanFate.KEEP, "until it expires, unless --foreign"),
        (machines(owner="tw-other", expires=None), None, OrphanFate.KEEP, "kept, unless --foreign"),
        (
            machines(owner="tw-other", expires=NOW - 90),
            None,
            OrphanFate.DESTROY,
            "another store, and it expired 1m 30s ago",
        ),
        (machines("x", owner="", expires=NOW - 1), None, OrphanFate.DESTROY, "nobody knows whose"),
        # Its tag is lost, and its name is known.
        (machines(owner=""), OVER, OrphanFate.DESTROY, "has ended"),
        (machines(owner=""), OPEN, OrphanFate.KEEP, "open"),
        # Only the engine's record of it is left.
        (replace(machines(), alive=False), OVER, OrphanFate.FORGET, "has ended"),
        (replace(machines(), alive=False), None, OrphanFate.FORGET, "no row"),
        (replace(machines(), alive=False), OPEN, OrphanFate.KEEP, "open"),
    ],
)
def test_rules(finding: OrphanFinding, row: KnownRun | None, fate: OrphanFate, why: str) -> None:
    decided, words = fate_of(finding, row)
    assert decided is fate
    assert why in words


def test_others_go_on_demand() -> None:
    assert fate_of(machines(owner="tw-other"), foreign=True)[0] is OrphanFate.DESTROY
    assert fate_of(machines(owner="tw-held"), foreign=True)[0] is OrphanFate.KEEP


def test_the_young_are_kept() -> None:
    old = replace(machines(), created=NOW - 7200)
    assert fate_of(old, older_than=3600.0)[0] is OrphanFate.DESTROY
    assert fate_of(replace(old, created=NOW - 60), older_than=3600.0)[0] is OrphanFate.KEEP
    fate, why = fate_of(machines(), older_than=3600.0)
    assert (fate, "not known to be older" in why) == (OrphanFate.KEEP, True)
    assert fate_of(machines(expires=NOW - 7200), older_than=3600.0)[0] is OrphanFate.DESTROY


def test_age_and_price() -> None:
    rows = {"tw-ours-00000-1": replace(OVER, price_per_hour=2.0)}
    decided = decide_fate(machines(), KnownRecords(OWNERS, rows), NOW)
    assert (decided.age, decided.price_per_hour, decided.study_id) == (30.0, 2.0, 1)
    decided = decide_fate(replace(machines(), price_per_hour=3.0, created=NOW - 40), KnownRecords(OWNERS, rows), NOW)
    assert (decided.age, decided.price_per_hour) == (40.0, 3.0)
    assert decided.spent == pytest.approx(3.0 * 40 / 3600)
    decided = decide_fate(machines(owner="x"), KnownRecords(), NOW)
    assert (decided.age, decided.spent) == (None, None)
    ended = replace(machines(), price_per_hour=3.0, created=NOW - 40, alive=False)
    assert decide_fate(ended, KnownRecords(OWNERS, rows), NOW).spent is None, "it costs no more"


_MOMENTS = st.none() | st.floats(NOW - 1e5, NOW + 1e5)
_FINDINGS = st.builds(
    OrphanFinding,
    st.sampled_from(OrphanKind),
    st.just("cloud"),
    st.sampled_from(["run-1", "run-2"]),
    st.sampled_from(["", "tw-ours", "tw-held", "tw-other"]),
    _MOMENTS,
    _MOMENTS,
    st.booleans(),
)
_ROWS = st.dictionaries(
    st.sampled_from(["run-1", "run-2"]),
    st.builds(KnownRun, st.sampled_from(["tw-ours", "tw-held"]), st.booleans(), _MOMENTS),
)
_LIMITS = st.none() | st.floats(0, 1e5)


@pytest.mark.slow
@given(_FINDINGS, _ROWS, _LIMITS, st.booleans())
def test_what_always_holds(
    finding: OrphanFinding, rows: dict[str, KnownRun], older_than: float | None, foreign: bool
) -> None:
    known = KnownRecords(OWNERS, rows)

    def decided(**options: object) -> OrphanDecision:
        return decide_fate(finding, known, NOW, **{"older_than": older_than, "foreign": foreign, **options})  # type: ignore[arg-type]

    answer = decided()
    goes = answer.fate is not OrphanFate.KEEP
    row = rows.get(finding.run_id)
    tag = finding.owner or (row.owner if row else "")
    past = finding.expires is not None and finding.expires < NOW
    assert answer.why
    assert answer.age is None or answer.age >= 0
    if tag == "tw-held":
        assert not goes, "what belongs to a study that is being run is never touched"
    if goes and tag not in OWNERS:
        assert past or foreign, "what belongs to somebody else stays until it expires"
    if goes and tag == "tw-ours" and row is not None and not row.ended:
        assert past and answer.fate is OrphanFate.SETTLE, "an open run goes only when it has expired, and with its row"
    if goes and older_than is not None:
        assert answer.age is not None and answer.age >= older_than
    if answer.fate is OrphanFate.FORGET:
        assert not finding.alive
    if finding.alive and goes:
        assert answer.fate in (OrphanFate.DESTROY, OrphanFate.SETTLE)
    # The options only do what they say.
    assert not goes or decided(older_than=None).fate is answer.fate
    assert not goes or decided(foreign=True).fate is answer.fate
    if tag in OWNERS:
        assert decided(foreign=not foreign) == answer

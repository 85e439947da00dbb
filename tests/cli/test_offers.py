from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tradewind import plugins
from tradewind.cli import offers as command
from tradewind.errors import FetchError, InputError, MissingProgramError, NoOfferError, PluginError, TradewindError

runner = CliRunner()


@pytest.fixture
def app() -> typer.Typer:
    main = typer.Typer()
    main.add_typer(command.offers_app, name="offers")

    @main.command()
    def other() -> None:
        """A second command, so that typer keeps the first one's name."""

    return main


def run(app: typer.Typer, *words: str) -> str:
    result = runner.invoke(app, ["offers", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def listed(app: typer.Typer, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run(app, *words, "--json"))
    return rows


def test_filters(app: typer.Typer) -> None:
    rows = listed(app, "--provider", "aws", "--region", "us-east-1", "--category", "compute", "--arch", "arm64",
                  "--vcpu", "4..16", "--memory", "16GiB..", "--max-price", "$0.50")  # fmt: skip
    assert rows
    for row in rows:
        assert (row["provider"], row["region"], row["category"], row["arch"]) == (
            "aws",
            "us-east-1",
            "compute",
            "arm64",
        )
        assert 4 <= row["vcpu"] <= 16
        assert row["memory_gib"] >= 16
        assert row["price_per_hour"] <= 0.5


def test_types_families_and_accelerators(app: typer.Typer) -> None:
    names = {row["instance_type"] for row in listed(app, "--type", "m5.*", "--region", "us-west-2")}
    assert "m5.large" in names
    assert all(name.startswith("m5.") for name in names)
    assert {row["family"] for row in listed(app, "--family", "c3")} == {"c3"}
    assert {row["gpus"] for row in listed(app, "--gpus", "4..8")} == {4, 6, 8}


@pytest.mark.parametrize(
    ("sort", "value"),
    [
        ("price", lambda row: row["price_per_hour"]),
        ("vcpu", lambda row: row["vcpu"]),
        ("memory", lambda row: row["memory_gib"]),
        ("name", lambda row: row["instance_type"]),
        ("price-per-vcpu", lambda row: row["price_per_hour"] / row["vcpu"]),
    ],
)
def test_sorts_before_it_cuts(app: typer.Typer, sort: str, value: Any) -> None:
    every = [value(row) for row in listed(app, "--provider", "gcp", "--sort", sort)]
    assert every == sorted(every)
    assert [value(row) for row in listed(app, "--provider", "gcp", "--sort", sort, "--limit", "7")] == every[:7]


def test_the_table_says_prices_per_hour(app: typer.Typer) -> None:
    text = run(app, "--provider", "local")
    assert "per hour" in text
    assert "local.c1" in text


@pytest.mark.parametrize(
    ("date", "shown"),
    [
        ("", ""), ("2026-11-20", "2026-11-20"), ("2026-10-20", "2026-10-20 (1 month old)"),
        ("2026-12-24", "2026-12-24"),
        ("2025-03", "2025-03 (20 months old)"), ("2024-03-01", "2024-03-01 (2.7 years old)"), ("spring", "spring"),
    ],
)  # fmt: skip
def test_prices_say_how_old_they_are(date: str, shown: str) -> None:
    assert command._dated(date, datetime.date(2026, 11, 27)) == shown


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_table_fits(width: int) -> None:
    from tradewind.problem import Offer

    name, region = "Standard_NC24ads_A100_v4", "southcentralus"
    offers = [Offer("azure", name, 24, 220, 3.673, region, "accelerated", "NC", "x86_64", 1, price_date="2026-06-01")]
    columns = command._columns(offers)
    names = command._fitting(columns, width)
    assert names[0] == "provider"
    assert {"type", "vCPU", "GiB", "per hour"} <= set(names)
    if width >= 60:
        assert sum(2 + max(len(name), *(len(cell) for cell in columns[name])) for name in names) <= width
    assert (len(names) == len(columns)) == (width == 200)


def test_a_csv_of_ones_own(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("API Name,Provider,CPU,Memory,Category,Price\nx1,mine,2,8,general,0.5\n")
    assert [row["instance_type"] for row in listed(app, "--csv", str(path))] == ["x1"]
    both = listed(app, "--csv", str(path), "--provider", "csv", "--provider", "local")
    assert {row["provider"] for row in both} == {"mine", "local"}


def test_the_csv_of_ones_own_is_asked_first() -> None:
    given = command.catalogue_settings(["sparecores.path=sc.db", "csv.path=other.csv"], "own.csv")
    assert list(given.items()) == [("csv", {"path": "own.csv"}), ("sparecores", {"path": "sc.db"})]


def test_settings_of_a_catalogue(app: typer.Typer) -> None:
    words = ("--set", "local.price_per_vcpu=2", "--set", "local.price_per_gib=0", "--set", "local.vcpu=1")
    assert {row["price_per_hour"] for row in listed(app, "--provider", "local", *words)} == {2.0}


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("8", (8, 8)),
        ("4..16", (4, 16)),
        ("4..", (4, None)),
        ("..16", (None, 16)),
        ("0.5 .. 2", (0.5, 2)),
        (None, (None,) * 2),
    ],
)
def test_ranges(text: str | None, bounds: tuple[float | None, float | None]) -> None:
    assert command._range(text, "--vcpu") == bounds


def test_ranges_of_memory() -> None:
    assert command._range("512MiB..16", "--memory", memory=True) == (0.5, 16)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--vcpu", "16..4"), "upside down"),
        (("--vcpu", ".."), "not a range"),
        (("--vcpu", "1..2..3"), "not a range"),
        (("--vcpu", "many"), "not a number"),
        (("--gpus=-1"), "not a number"),
        (("--vcpu", "nan"), "not a number"),
        (("--memory", "8 bananas"), "amount of memory"),
        (("--max-price", "free"), "amount of money"),
        (("--sort", "beauty"), "price-per-vcpu"),
        (("--set", "price=1"), "local.price_per_vcpu"),
    ],
)
def test_wrong_words(app: typer.Typer, words: tuple[str, ...] | str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(app, *((words,) if isinstance(words, str) else words))


def test_nothing_found_is_no_offer(app: typer.Typer) -> None:
    with pytest.raises(NoOfferError, match="us-east-1"):
        run(app, "--provider", "aws", "--region", "us-eest-1")
    with pytest.raises(PluginError, match="did you mean 'aws'"):
        run(app, "--provider", "awss")


# ---------------------------------------------------------------------------------------------------- refresh


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)


def scripted(monkeypatch: pytest.MonkeyPatch, **outcome: Any) -> list[tuple[str, Any]]:
    """Let catalogues say a line or raise instead of fetching; returns who was asked, for which regions."""
    asked: list[tuple[str, Any]] = []
    for name in ("aws", "azure", "gcp"):

        def refresh(self: Any, name: str = name) -> Any:
            asked.append((name, self.settings.regions))
            result = outcome.get(name, f"{name}: 1 price")
            if isinstance(result, TradewindError):
                raise result
            yield result

        monkeypatch.setattr(plugins.load("catalogue", name), "refresh", refresh)
    return asked


def test_refreshes_all_that_can(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = scripted(monkeypatch)
    assert run(app, "refresh").splitlines() == ["aws: 1 price", "azure: 1 price", "gcp: 1 price"]
    assert [name for name, _ in asked] == ["aws", "azure", "gcp"]


def test_refreshes_the_named_one_for_a_region(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = scripted(monkeypatch)
    run(app, "refresh", "aws", "--region", "sa-east-1", "--set", "aws.timeout=3")
    assert asked == [("aws", ("sa-east-1",))]


def test_a_missing_key_is_no_failure_unless_it_is_asked_for(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, gcp=MissingProgramError("gcp: no key"))
    result = runner.invoke(app, ["offers", "refresh"])
    assert result.exit_code == 0
    assert "left out: gcp: no key" in result.stderr
    with pytest.raises(MissingProgramError):
        run(app, "refresh", "gcp")


def test_one_that_fails_does_not_stop_the_others(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = scripted(monkeypatch, aws=FetchError("aws is away"), azure=FetchError("azure is away"))
    result = runner.invoke(app, ["offers", "refresh"])
    assert [name for name, _ in asked] == ["aws", "azure", "gcp"]
    assert "aws is away" in result.stderr
    assert str(result.exception) == "azure is away"


@pytest.mark.usefixtures("no_key")
def test_refresh_without_a_key_for_real(app: typer.Typer) -> None:
    with pytest.raises(MissingProgramError, match="GOOGLE_API_KEY"):
        run(app, "refresh", "gcp")


def test_wrong_refreshes(app: typer.Typer) -> None:
    with pytest.raises(InputError, match="no prices to refresh"):
        run(app, "refresh", "local")
    with pytest.raises(PluginError, match="did you mean 'azure'"):
        run(app, "refresh", "azzure")
    with pytest.raises(InputError, match="exactly one provider"):
        run(app, "refresh", "--region", "x")


def test_importing_the_command_is_cheap() -> None:
    heavy = ("numpy", "pydantic", "rich.table", "yaml")
    code = f"import sys, tradewind.cli.offers; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_listing_offers_loads_neither_numpy_nor_the_schema_of_jobs(tmp_path: Path) -> None:
    heavy = ("numpy", "yaml", "tradewind.problem.job", "tradewind.problem.expression")
    code = f"""
import sys
from pathlib import Path
from tradewind.problem import OfferQuery
from tradewind.selector.offer_search import find_offers
assert find_offers(OfferQuery(provider=("aws",)), Path({str(tmp_path)!r}))
print([m for m in {heavy} if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_source_is_shown_in_short(app: typer.Typer) -> None:
    assert command._short_source("https://prices.azure.com/api/retail/prices") == "prices.azure.com"
    assert command._short_source("Spare Cores: /home/me/.cache/sc-data-all.db") == "Spare Cores: sc-data-all.db"
    assert command._short_source("apache-libcloud 3.9.1 (family)") == "apache-libcloud 3.9.1 (family)"
    lines = run(app, "--provider", "aws", "--region", "us-east-1", "--type", "m5.large").splitlines()
    assert lines[0].split()[-1] == "source"
    assert lines[1].endswith("cloudwright-ai 1.10.0")

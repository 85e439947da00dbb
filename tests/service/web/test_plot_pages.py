"""Studies, workflows, the cluster, offers and administration, in a real browser."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.service.web.accessibility import cut_off, find_wrong, keep_pictures
from tests.service.web.sample_data import Shelf, fill, more, study, trial
from tests.service.web.sample_server import Stage

from tradewind.store.base import Change, this_process

if TYPE_CHECKING:
    from playwright.sync_api import Download, Page

pytestmark = pytest.mark.xdist_group("browser")

Opener = Callable[..., "Page"]

TRIALS = 2_500

PAGES = {
    "studies": ("ann", "/studies"),
    "study": ("ann", "/studies/{large}"),
    "study-empty": ("root", "/studies/{empty}"),
    "workflows": ("ann", "/workflows"),
    "workflow": ("ann", "/requests/{workflow}/workflow"),
    "cluster": ("ann", "/cluster"),
    "offers": ("ann", "/offers"),
    "admin-machines": ("root", "/admin/machines"),
    "admin-users": ("root", "/admin/users"),
    "admin-tenants": ("root", "/admin/tenants?name=physics"),
    "admin-backends": ("root", "/admin/backends?name=local"),
    "admin-applications": ("root", "/admin/applications"),
    "admin-servers": ("root", "/admin/servers"),
    "admin-audit": ("root", "/admin/audit"),
}


@pytest.fixture(scope="session")
def shelf(scene: Stage, tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Studies, a cluster and a workflow."""
    return fill(scene, tmp_path_factory.mktemp("workflow"), TRIALS)


def expect(thing: Any) -> Any:
    """What must come to be so; playwright is imported late."""
    from playwright.sync_api import expect

    expect.set_options(timeout=20_000)
    return expect(thing)


def comes_true(page: Page, look: Callable[[], bool], words: str) -> None:
    """Wait until a look at the page finds it so: charts and tables are drawn with the browser's next frame."""
    end = time.monotonic() + 20
    while not look():
        assert time.monotonic() < end, words
        page.wait_for_timeout(25)


def go(page: Page, address: str) -> None:
    """Open a page, and wait until its charts have their data."""
    page.goto(address)
    page.wait_for_selector("[data-loading]", state="detached")


def read_csv(download: Download) -> list[list[str]]:
    """What a file has that the page has made."""
    return list(csv.reader(io.StringIO(Path(download.path()).read_text())))


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str, open_page: Opener, shelf: Shelf, shots: Path | None) -> None:
    """No serious finding of axe in either colour, nothing wider than a phone, and one heading of the first level."""
    who, address = PAGES[name]
    page = open_page(who)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    go(page, address.format(**vars(shelf)))
    assert page.locator("h1").count() == 1
    assert find_wrong(page) == []
    if shots is not None:
        keep_pictures(page, shots, name)
    assert cut_off(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_the_list_leads_to_a_study(open_page: Opener, shelf: Shelf) -> None:
    page = open_page()
    page.goto("/studies")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody tr").first).to_contain_text("running")
    page.get_by_role("link", name="Finished").click()
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(f"{TRIALS:,}")
    page.get_by_placeholder("Name", exact=True).fill("nothing like that")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_role("heading", name="No study like that")).to_be_visible()
    page.get_by_role("link", name="Show all").click()
    page.get_by_role("link", name="terasort").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("terasort")


def test_the_reasons_begin_with_what_a_run_cost_before_and_costs_now(open_page: Opener, shelf: Shelf) -> None:
    page = open_page()
    go(page, f"/studies/{shelf.large}")
    first = page.locator("#words li").first
    expect(first).to_contain_text(
        re.compile(r"^The first configuration that kept every constraint \(trial \d+\) costs \$")
    )
    expect(first).to_contain_text("is paid back after")


def test_thousands_of_trials_are_sorted_filtered_and_walked_through(open_page: Opener, shelf: Shelf) -> None:
    page = open_page()
    go(page, f"/studies/{shelf.large}")
    grid = page.get_by_role("grid", name="Trials")
    expect(grid).to_have_attribute("aria-rowcount", str(TRIALS + 1))
    assert page.locator("#trials tbody tr").count() < 60, "only what is in sight is in the page"
    page.locator("#trials").get_by_role("button", name="Cost, this run").click()
    expect(page.locator("#trials th[aria-sort=ascending]")).to_have_text("Cost, this run ▲")

    def costs() -> list[float]:
        texts = page.locator("#trials tbody td:nth-child(3)").all_inner_texts()
        return [float(text.strip("≥ $")) for text in texts if text]

    comes_true(page, lambda: len(found := costs()) > 5 and found == sorted(found), "the rows are not sorted by cost")
    page.get_by_placeholder("Filter").fill("codec=zstd cost<$0.20 time<20m")
    expect(page.locator("#passing")).to_contain_text("pass the filters")
    shown = int((page.locator("#passing").inner_text()).split()[0].replace(",", ""))
    assert 4 < shown < TRIALS / 5
    expect(grid).to_have_attribute("aria-rowcount", str(shown + 1))
    page.get_by_placeholder("Filter").fill("colour=red")
    expect(page.locator("#f-problem")).to_contain_text("There is no colour here: write one of codec, fraction")
    expect(page.get_by_placeholder("Filter")).to_have_attribute("aria-invalid", "true")
    page.get_by_placeholder("Filter").fill("")
    page.get_by_label("Outcome").select_option("failed")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as CSV", exact=True).last.click()
    rows = read_csv(saved.value)
    assert {row[1] for row in rows[1:]} == {"failed"}
    assert len(rows) > TRIALS / 30
    page.get_by_role("button", name="Clear all filters").click()
    grid.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    active = page.locator("#trials tr[aria-selected=true]")
    expect(active).to_have_attribute("aria-rowindex", str(TRIALS + 1))
    expect(grid).to_have_attribute("aria-activedescendant", active.get_attribute("id"))
    page.keyboard.press("Enter")
    sheet = page.locator("#trial")
    expect(sheet).to_be_visible()
    expect(sheet).to_contain_text("What the searcher expected")
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    assert page.evaluate("document.activeElement.getAttribute('role')") == "grid"


def labels(page: Page, id: str, axis: str) -> list[float]:
    """The range of an axis that is in sight."""
    look = "(box, axis) => box.view.chart ? box.view.visible(axis) : []"
    found: list[float] = page.locator(f"#{id} .plot-box").evaluate(look, axis)
    return found


def test_charts_are_linked_zoomed_and_saved(open_page: Opener, shelf: Shelf) -> None:
    page = open_page()
    go(page, f"/studies/{shelf.large}")
    chart = page.get_by_role("group", name="Cost and run time of every trial")
    chart.scroll_into_view_if_needed()
    comes_true(page, lambda: len(labels(page, "map", "x")) == 2, "the chart is not drawn")
    chart.focus()
    page.keyboard.press("ArrowRight")
    expect(chart.locator(".plot-tip")).to_contain_text("this run")
    expect(page.locator("#map [role=status]")).to_contain_text("Trial")
    first = chart.locator(".plot-tip strong").inner_text()
    page.keyboard.press("ArrowRight")
    expect(chart.locator(".plot-tip strong")).not_to_have_text(first)
    whole = labels(page, "map", "x")
    page.keyboard.press("+")
    show_all = page.locator("#map-tools").get_by_role("button", name="Show all")
    expect(show_all).to_be_visible()
    comes_true(page, lambda: labels(page, "map", "x") != whole, "the axes show the range of before the zoom")
    show_all.click()
    expect(show_all).to_be_hidden()
    comes_true(page, lambda: labels(page, "map", "x") == whole, "the axes still show the zoomed range")
    page.locator("#map-tools summary").click()
    across = page.locator("#map-tools").get_by_label("Logarithmic across")
    logarithmic = chart.evaluate("box => box.view.isLog('x')")
    expect(across).to_be_checked(checked=logarithmic)
    across.set_checked(not logarithmic)
    assert chart.evaluate("box => box.view.isLog('x')") is not logarithmic
    with page.expect_download() as saved:
        page.locator("#map-tools").get_by_role("button", name="Save as PNG").click()
    assert Path(saved.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    page.locator("#progress-tools summary").click()
    page.locator("#progress-tools").get_by_role("button", name="Show as a table").click()
    steps = page.locator("#progress-table tbody tr")
    expect(steps.nth(3)).to_be_visible()
    best = [float(text.strip("$")) for text in steps.locator("td:nth-child(3)").all_inner_texts()]
    assert best == sorted(best, reverse=True)


def test_a_drag_zooms_and_a_double_click_shows_all(open_page: Opener, shelf: Shelf) -> None:
    page = open_page()
    go(page, f"/studies/{shelf.large}")
    chart = page.locator("#map .plot-box")
    chart.scroll_into_view_if_needed()
    comes_true(page, lambda: len(labels(page, "map", "x")) == 2, "the chart is not drawn")
    whole, box = labels(page, "map", "x"), chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.7 * box["height"], steps=4)
    page.mouse.up()
    comes_true(page, lambda: labels(page, "map", "x")[0] > whole[0], "a drag does not zoom")
    chart.dblclick(position={"x": box["width"] / 2, "y": 5})
    comes_true(page, lambda: labels(page, "map", "x") == whole, "a double click does not show all")


def test_parts_of_the_input_stand_beside_no_whole_run(open_page: Opener, scene: Stage, shelf: Shelf) -> None:
    parted = study(scene.context, "parts", 0, ago=900.0, tenant="")
    made = [trial(number, np.random.default_rng(number), time.time()) for number in range(40)]
    good = [(one, run) for one, run in made if one.observation is not None and one.observation.feasible][:6]
    for place in (1, 4):
        one, run = good[place]
        good[place] = replace(one, proposal=replace(one.proposal, fidelity=0.1)), run
    scene.context.store.write(parted, Change([one for one, _ in good], [run for _, run in good]))
    page = open_page("root")
    go(page, f"/studies/{parted}")
    expect(page.get_by_role("grid", name="Trials")).to_have_attribute("aria-rowcount", "7")
    for name in ("map", "progress"):
        page.locator(f"#{name}-tools summary").click()
        with page.expect_download() as saved:
            page.locator(f"#{name}-tools").get_by_role("button", name="Save as CSV").click()
        numbers = {int(row[0]) for row in read_csv(saved.value)[1:]}
        assert numbers == {one.number for one, _ in good if one.proposal.fidelity == 1.0}


def test_a_range_on_an_axis_filters_all(open_page: Opener, shelf: Shelf) -> None:
    page = open_page()
    go(page, f"/studies/{shelf.large}")
    page.get_by_text("Ranges: keep only trials between two values").click()
    handle = page.get_by_role("slider", name="instance, greatest")
    handle.scroll_into_view_if_needed()
    handle.focus()
    words = handle.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(handle).not_to_have_attribute("aria-valuetext", words)
    expect(page.locator("#passing")).to_contain_text(f"of {TRIALS:,} trials pass the filters")
    passing = int(page.locator("#passing").inner_text().split()[0].replace(",", ""))
    expect(page.get_by_role("grid", name="Trials")).to_have_attribute("aria-rowcount", str(passing + 1))
    page.keyboard.press("Escape")
    expect(page.locator("#passing")).to_have_text(f"{TRIALS:,} trials")
    button = page.locator("#effects").get_by_role("button", name="nodes")
    button.click()
    expect(page.locator("#effect-title")).to_have_text("cost by nodes")
    expect(page.locator("#effects [aria-pressed=true]")).to_have_text("nodes")


def test_a_running_study_keeps_itself_up_to_date(open_page: Opener, scene: Stage, shelf: Shelf) -> None:
    page = open_page()
    go(page, f"/studies/{shelf.small}")
    expect(page.locator("h1 .badge")).to_have_text("running")
    expect(page.get_by_role("grid", name="Trials")).to_have_attribute("aria-rowcount", "61")
    more(scene.context, shelf.small, 60)
    expect(page.get_by_role("grid", name="Trials")).to_have_attribute("aria-rowcount", "62")
    expect(page.locator("#said")).to_have_text("New best: 0.1¢, trial 60")
    expect(page.locator("#best")).to_contain_text("Trial 60")


def test_a_running_study_asks_again_for_what_failed(open_page: Opener, scene: Stage, shelf: Shelf) -> None:
    page, number = open_page(expected="Failed to load resource"), 61
    go(page, f"/studies/{shelf.small}")
    expect(page.locator("h1 .badge")).to_have_text("running")
    left = [503]
    page.route(
        re.compile("since=|part=1"),
        lambda route: route.fulfill(status=left.pop()) if left and "part" in route.request.url else route.continue_(),
    )
    more(scene.context, shelf.small, number, 0.0009)
    expect(page.locator("#best")).to_contain_text(f"Trial {number}")
    assert not left


def test_a_study_without_a_trial_says_so(open_page: Opener, shelf: Shelf) -> None:
    page = open_page("root")
    go(page, f"/studies/{shelf.empty}")
    expect(page.locator("#trials")).to_contain_text("There is no trial yet.")
    for drawn in ("progress", "map", "parallel", "split-card"):
        expect(page.locator(f"#{drawn}")).to_be_hidden()


def test_charts_come_with_the_first_trial(open_page: Opener, scene: Stage) -> None:
    young = study(scene.context, "young", 0, ago=60.0, tenant="")
    scene.context.store.hold(young, this_process(), 3600.0)
    page = open_page("root")
    go(page, f"/studies/{young}")
    expect(page.locator("#map")).to_be_hidden()
    more(scene.context, young, 0)
    expect(page.locator("#map canvas").first).to_be_visible()
    comes_true(page, lambda: page.locator("#map canvas").first.bounding_box()["width"] > 200, "the chart has no width")  # type: ignore[index]


def test_the_boxes_of_a_parameter_have_a_table(open_page: Opener, shelf: Shelf) -> None:
    page = open_page()
    go(page, f"/studies/{shelf.large}")
    page.locator("#effects").get_by_role("button", name="nodes").click()
    chart = page.get_by_role("group", name="cost by nodes")
    chart.focus()
    page.keyboard.press("ArrowRight")
    expect(chart.locator(".plot-tip")).to_contain_text("median")
    page.locator("#effect-tools summary").click()
    page.locator("#effect-tools").get_by_role("button", name="Show as a table").click()
    expect(page.locator("#effect-table thead th").nth(3)).to_have_text("median")


def test_another_tenants_study_is_not_there(open_page: Opener, shelf: Shelf) -> None:
    page = open_page("bob", expected="404")
    for address in (f"/studies/{shelf.large}", f"/studies/{shelf.large}/trials.csv", "/studies/4711"):
        assert page.goto(address).status == 404  # type: ignore[union-attr]
        expect(page.get_by_role("heading", level=1)).to_have_text("Page not found")


def test_a_workflow_is_looked_at_task_by_task(open_page: Opener, shelf: Shelf) -> None:
    page = open_page(expected="422")
    page.goto(f"/requests/{shelf.workflow}")
    page.get_by_role("link", name="The workflow, task by task").click()
    page.wait_for_selector("[data-loading]", state="detached")
    expect(page.locator("#figures")).to_contain_text("actual makespan")
    grid = page.get_by_role("grid", name="Tasks")
    expect(grid).to_have_attribute("aria-rowcount", "4")
    page.get_by_role("button", name="y 1").click()
    expect(grid).to_have_attribute("aria-rowcount", "2")
    chart = page.get_by_role("group", name="Gantt chart of")
    chart.focus()
    page.keyboard.press("+")
    expect(page.get_by_role("button", name="Show all")).to_be_visible()
    page.goto("/workflows")
    page.get_by_label("Plan or results").set_input_files(
        {"name": "a.json", "mimeType": "application/json", "buffer": b"{}"}
    )
    page.get_by_role("button", name="Draw it").click()
    expect(page.get_by_role("alert")).to_contain_text("neither a plan nor the results of a run")


def test_offers_are_filtered_and_compared(open_page: Opener, shelf: Shelf) -> None:
    page = open_page()
    go(page, "/offers")
    count = page.locator("#count")
    comes_true(page, lambda: int(count.inner_text().split()[0].replace(",", "")) > 3000, "few offers are shown")
    page.get_by_label("GPUs").select_option("8")
    page.get_by_label("Type or family").fill("h100")
    expect(count).to_contain_text(re.compile(r"\d of \d"))
    assert int(count.inner_text().split()[0]) > 1
    assert "gpus=8" in page.url
    grid = page.get_by_role("grid", name="Offers")
    grid.focus()
    for key in ("ArrowDown", "Enter", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    compared = page.locator("#compare")
    expect(compared).to_contain_text("the cheapest")
    expect(compared.locator("thead th")).to_have_count(3)
    page.reload()
    expect(page.get_by_label("GPUs")).to_have_value("8")
    page.get_by_role("button", name="Clear filters").click()
    expect(count).not_to_contain_text(re.compile(r"\d of \d"))


def test_a_user_sees_no_more_of_the_cluster_than_the_own_tenant(open_page: Opener, shelf: Shelf) -> None:
    page = open_page()
    page.goto("/cluster")
    expect(page.locator("main")).to_contain_text("it has stopped improving and gives way")
    expect(page.locator("main")).to_contain_text("other tenants")
    expect(page.locator("main")).not_to_contain_text("blast")


def test_an_administrator_looks_after_users_and_tenants(open_page: Opener, shelf: Shelf) -> None:
    page = open_page("root", expected="422")
    page.goto("/admin/users")
    form = page.locator("form[action='/admin/users']")
    form.get_by_label("Name").fill("zoe")
    form.get_by_label("Password").fill("short")
    form.get_by_role("button", name="Add").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(form.get_by_label("Name")).to_have_value("zoe")
    form.get_by_label("Password").fill("a long sentence of words")
    form.get_by_role("button", name="Add").click()
    expect(page.locator("main").get_by_role("heading", level=2).first).to_contain_text("zoe")
    page.get_by_label("State").select_option("locked")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".user-name .badge")).to_have_text("locked")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("status")).to_contain_text("zoe is removed")
    page.goto("/admin/tenants")
    page.get_by_role("link", name="Change biology").click()
    page.get_by_label("Weight").fill("2.5")
    page.get_by_label("USD in all").fill("40")
    page.get_by_role("button", name="Save").click()
    row = page.get_by_role("row").filter(has_text="biology")
    expect(row).to_contain_text("2.5")
    expect(row).to_contain_text("$40.00")
    page.goto("/admin/audit?action=tenant")
    expect(page.locator("tbody tr").first).to_contain_text("tenant.set")


def test_backends_and_machines_are_looked_after(open_page: Opener, shelf: Shelf) -> None:
    page = open_page("root", expected="422")
    page.goto("/admin/backends")
    page.get_by_label("Name", exact=True).fill("quiet")
    page.get_by_label("Document").fill("users: nobody")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("should be 'everyone' or 'admins'")
    page.get_by_label("Document").fill("title: Quiet\nusers: admins\ndeploy: {runner: process}")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row").filter(has_text="quiet")).to_contain_text("administrators")
    page.goto("/admin/machines")
    expect(page.locator("#live")).to_contain_text("openfoam")
    expect(page.locator("#live")).to_contain_text("aws")
    page.get_by_role("button", name="Ask them what is there").click()
    expect(page.locator("#providers")).to_contain_text("Asked")
    assert open_page("ann", expected="403").goto("/admin/machines").status == 403  # type: ignore[union-attr]

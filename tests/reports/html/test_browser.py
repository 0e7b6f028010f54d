"""Reports in a real browser: nothing is fetched, nothing complains, and what moves shows the numbers of the run."""

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import report_parts as made_up
from helpers.browser_pages import BROWSER, FLAGS, PHONE, WIDE, Opened

from placecode.cli.reporting import command_of
from placecode.experiments import experiment_of
from placecode.reports.html import comparison, templates
from placecode.reports.html.tables import number
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium or Chrome on this machine")
RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def run() -> Run:
    return Run(RESULTS / "demo")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, run: Run) -> dict[str, Path]:
    """Pages of a committed run, of made-up channels of which one has an evil name, of a thousand, and of two runs."""
    folder, experiment = tmp_path_factory.mktemp("pages"), experiment_of(run)
    claims = [claim.check(run).record() for claim in experiment.claims]
    command, crowded_slider, crowded_map = command_of(run, experiment), *made_up.crowded()
    other = Run(RESULTS / "demo-fresh")
    compared = [page_of(experiment, run), page_of(experiment_of(other), other)]

    def text_of(**content: Any) -> str:
        return made_up.report_of(run, command, title="T", lead=["One."], **content)

    texts = {
        "demo": text_of(claims=claims, slider=page_of(experiment, run).slider()),
        "fit": text_of(slider=made_up.slider(60, 4), channel_map=made_up.channels(60)),
        "many": text_of(slider=made_up.slider(1000, 5), channel_map=made_up.channels(1000)),
        "crowded": text_of(slider=crowded_slider, channel_map=crowded_map),
        "figures": text_of(figures=[made_up.figure_of_size("square", 7.2, 6.2), made_up.figure_of_size("broad", 9, 3)]),
        "both": comparison.render(compared, ["one", "other"]),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text)
    return {name: folder / f"{name}.html" for name in texts}


@pytest.fixture(scope="module")
def opened_once(browser: Any, pages: dict[str, Path]) -> Iterator[Callable[[str], Opened]]:
    """Each page by its name, opened when first asked for: to read five megabytes takes a browser seconds."""
    known: dict[str, Opened] = {}

    def find(name: str) -> Opened:
        if name not in known:
            known[name] = Opened(browser, pages[name])
        return known[name]

    yield find
    for opened in known.values():
        opened.context.close()


@pytest.fixture
def at(opened_once: Callable[[str], Opened]) -> Iterator[Callable[[str], Opened]]:
    """A page by its name; whatever a test does to it, nothing may go wrong there."""
    used: list[Opened] = []

    def find(name: str) -> Opened:
        used.append(opened_once(name))
        return used[-1]

    yield find
    for opened in used:
        assert not opened.wrong


@pytest.mark.parametrize("name", ["demo", "fit", "many", "both"])
def test_it_opens_quietly_and_fits(at: Callable[[str], Opened], name: str) -> None:
    opened = at(name)
    width = "document.querySelector('.js-plotly-plot').getBoundingClientRect().width"
    for size, scheme in ((WIDE, "dark"), (PHONE, "dark"), (PHONE, "light"), (WIDE, "light")):
        opened.page.set_viewport_size(size)
        opened.page.emulate_media(color_scheme=scheme)
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert opened.page.locator(".js-plotly-plot").count() >= 4
        opened.page.wait_for_function(f"() => {width} <= {size['width']}")


def test_a_phone_that_opens_it_needs_not_to_scroll_sideways(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["fit"], PHONE, "dark") as opened:
        assert opened.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        for box in (plot.bounding_box() for plot in opened.page.locator(".js-plotly-plot").all()):
            assert box["width"] <= PHONE["width"] and box["height"] > 150


def test_a_phone_shows_a_square_figure_whole_and_a_broad_one_can_be_moved(at: Callable[[str], Opened]) -> None:
    page = at("figures").page
    page.set_viewport_size(PHONE)
    square, broad = page.locator("figure .wide").all()
    room = "(box) => box.scrollWidth - box.clientWidth"
    assert square.evaluate(room) == 0 < broad.evaluate(room)
    assert square.get_attribute("tabindex") is None
    for name, value in {"tabindex": "0", "role": "region", "aria-label": "Figure 2. broad"}.items():
        assert broad.get_attribute(name) == value
    broad.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.activeElement.scrollLeft > 0")
    page.set_viewport_size(WIDE)
    for figure, inches in ((square, 7.2), (broad, 9)):
        assert figure.evaluate(room) == 0
        assert figure.locator("svg").bounding_box()["width"] >= 96 * inches  # never smaller than it was drawn


def test_something_wrong_would_be_seen(browser: Any, tmp_path: Path) -> None:
    """The negative twin: a page that asks for a file elsewhere, and one that complains."""
    (tmp_path / "asks.html").write_text("<img src='http://127.0.0.1:9/x.png'>")
    (tmp_path / "complains.html").write_text("<script>console.error('no')</script>")
    for name in ("asks", "complains"):
        with pytest.raises(AssertionError), Opened(browser, tmp_path / f"{name}.html") as opened:
            opened.page.wait_for_timeout(100)


def test_the_policy_stops_other_scripts(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    text = pages["demo"].read_text().replace("</footer>", "</footer><script>document.title = 'taken'</script>", 1)
    (tmp_path / "taken.html").write_text(text)
    refused = pytest.raises(AssertionError, match="Content Security Policy")
    with refused, Opened(browser, tmp_path / "taken.html") as opened:
        assert opened.page.title() == "T"


def test_the_slider_moves_all_panels_and_shows_the_numbers_of_the_run(at: Callable[[str], Opened], run: Run) -> None:
    slider = page_of(experiment_of(run), run).slider()
    assert slider is not None
    summary = {
        (row["sigma"], row["split"]): row["mean"]
        for row in run.summary
        if row["encoding"] == "learned" and row["metric"] == "accuracy" and row["condition"] == "all"
    }
    opened = at("demo")
    for place in (4, 1):
        opened.move_to(place)
        position, shown = slider.positions[place], opened.shown()
        for split in ("train", "test", "ood"):
            text, bounds, exact = shown[f"accuracy, {split}"]
            assert text == number(summary[position.sigma, split])
            assert float(exact["mean"]) == pytest.approx(summary[position.sigma, split], abs=1e-12)
            low, high = position.measures[f"accuracy, {split}"][1:]
            assert bounds == f"{number(low)} to {number(high)}"
        assert opened.page.locator("#slider-0").get_attribute("aria-valuetext") == f"sigma {position.label}"
        assert opened.page.locator(".slider output b").inner_text() == position.label
        marks = opened.drawn("measure", "plot.data[plot.data.length - 1]")
        assert marks["x"] == [position.sigma] * 3
        assert marks["y"] == pytest.approx([summary[position.sigma, split] for split in ("train", "test", "ood")])
        assert position.similarity is not None and position.places is not None and position.attention is not None
        z = np.array(opened.drawn("similarity", "plot.data[0].z"))
        off = ~np.eye(16, dtype=bool)
        others = [item.similarity[off] for item in slider.positions if item.similarity is not None]
        assert np.abs(z - position.similarity)[off].max() < np.abs(others).max() / 127
        assert np.abs(np.array(opened.drawn("attention", "plot.data[0].z")) - position.attention).max() < 1 / 127
        script = "plot.data.flatMap((t) => t.customdata?.map((i, j) => [i, t.x[j], t.y[j]]) ?? [])"
        for i, x, y in opened.drawn("places", script):
            assert [x, y] == pytest.approx(position.places[int(i)], abs=1e-3)


def test_the_slider_is_turned_by_keys(at: Callable[[str], Opened], run: Run) -> None:
    opened = at("demo")
    opened.page.locator("#slider-0").focus()
    opened.page.keyboard.press("End")
    assert opened.page.locator(".slider").get_attribute("data-sigma") == "2"
    opened.page.keyboard.press("ArrowLeft")
    assert opened.page.locator(".slider").get_attribute("data-sigma") == "1"


def test_tables_sort_filter_and_can_be_taken_away(at: Callable[[str], Opened], run: Run) -> None:
    opened = at("demo")
    table = opened.page.locator("table", has_text="Accuracy at the final step: mean")
    means = [row for row in run.summary if row["metric"] == "accuracy" and row["condition"] == "all"]
    means = [row["mean"] for row in means if row["split"] == "ood"]
    head = table.locator("th[scope=col]", has_text="ood").locator("button")
    column = [text.strip() for text in table.locator("th[scope=col]").all_inner_texts()].index("ood")
    for order in (sorted(means), sorted(means, reverse=True)):
        head.click()
        rows = table.locator("tbody tr").all()
        cells = [row.locator("th, td").nth(column).get_attribute("data-sort-key") for row in rows]
        assert [float(cell or "nan") for cell in cells] == pytest.approx(order)
    table.locator("th[scope=col]").nth(1).locator("button").click()  # sigma
    texts = table.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert texts == ["0.1", "0.2", "0.5", "1", "2", "\N{EN DASH}"]  # as numbers, and what is missing last
    with opened.page.expect_download() as download:
        opened.page.locator(".table", has=table).locator("button.download").click()
    assert download.value.suggested_filename == "results.csv"
    rows_of = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    kept = {row["\N{GREEK SMALL LETTER SIGMA}"]: row for row in rows_of}
    one = next(r for r in run.summary if r["sigma"] == 0.5 and r["split"] == "test" and r["condition"] == "all")
    assert float(kept["0.5"]["test"]) == pytest.approx(one["mean"], abs=1e-12)
    half = 4.302653 * one["std"] / 3**0.5
    assert float(kept["0.5"]["test, half of the 95% interval"]) == pytest.approx(half, rel=1e-5)
    with opened.page.expect_download() as download:
        opened.page.locator(".take button").click()
    whole = json.loads(Path(download.value.path()).read_text())
    assert len(whole["tables"]) == opened.page.locator("table").count() > 4
    assert [position["sigma"] for position in whole["sliders"][0]] == [0.1, 0.2, 0.5, 1, 2]
    records = [claim.check(run).record() for claim in experiment_of(run).claims]
    (claims,) = [table for table in whole["tables"] if table["title"] == "Claims"]
    low, high = (claims["columns"].index(f"95% interval, {end}") for end in ("low", "high"))
    kept_ends = {(row[low], row[high]) for row in claims["rows"]}
    assert kept_ends >= {(record["low"], record["high"]) for record in records if record["effect"]}  # all digits
    assert whole["commands"] == [command_of(run, experiment_of(run))]


@pytest.mark.parametrize(("name", "count"), [("fit", 60), ("many", 1000)])
def test_a_channel_is_found_by_name(at: Callable[[str], Opened], pages: dict[str, Path], name: str, count: int) -> None:
    truth = made_up.channels(count)
    assert pages[name].stat().st_size < 10e6
    opened = at(name)
    page, card = opened.page, opened.page.locator(".chosen")
    page.fill("#find-channel", f"CHANNEL {count - 1}")
    page.keyboard.press("Enter")
    for channel in (count - 1, truth.neighbors[count - 1][0][0]):
        assert card.get_attribute("data-channel") == str(channel)
        assert card.locator("h3").inner_text() == truth.names[channel]
        rows = card.locator(".near li").all()
        assert [row.get_attribute("data-neighbor") for row in rows] == [str(i) for i, _ in truth.neighbors[channel]]
        names = [truth.names[i] for i, _ in truth.neighbors[channel]]
        assert [row.locator("button").inner_text() for row in rows] == names
        sure = [f"{round(100 * share):.0f}%" for _, share in truth.neighbors[channel]]
        assert [row.locator(".percent").inner_text() for row in rows] == sure
        assert truth.modules is not None
        code = truth.modules[channel]
        assert card.locator("dd").first.inner_text() == ("none" if code < 0 else f"module {code + 1}")
        ringed = opened.drawn("channel-map", "plot.data[plot.data.length - 1].customdata")
        assert ringed == [channel, *(i for i, _ in truth.neighbors[channel])]
        rows[0].locator("button").click()  # and on to the nearest one
    page.fill("#find-channel", "channel 1")
    first = page.locator("#matches [role=option]").first  # the second channel has another name
    assert first.inner_text() == "channel 10"
    page.fill("#find-channel", "nobody")
    assert page.locator(".more").inner_text() == "no channel has that name"
    assert card.get_attribute("data-channel") is None and card.inner_text() == ""
    assert opened.drawn("channel-map", "plot.data.every((t) => t.marker?.symbol !== 'circle-open' || t.name)")


def test_channels_are_found_by_keys_alone(at: Callable[[str], Opened]) -> None:
    page = at("fit").page
    box = page.locator("#find-channel")
    assert box.get_attribute("role") == "combobox" and page.locator("#matches").get_attribute("role") == "listbox"
    box.fill("channel 2")
    assert box.get_attribute("aria-expanded") == "true"
    options = page.locator("#matches [role=option]").all_inner_texts()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert box.get_attribute("aria-activedescendant") == "match-1"
    assert page.locator("#matches [aria-selected=true]").all_inner_texts() == [options[1]]
    page.keyboard.press("Enter")
    assert page.locator(".chosen h3").inner_text() == options[1]
    assert box.get_attribute("aria-expanded") == "false" and page.locator("#matches li").count() == 0


def test_a_click_on_the_map_chooses_the_channel(at: Callable[[str], Opened]) -> None:
    opened = at("fit")
    for plot in opened.page.locator(".plot").all():
        assert plot.get_attribute("role") == "img" and plot.get_attribute("aria-label")
    opened.drawn("channel-map", "plot.emit('plotly_click', { points: [{ customdata: 7 }] })")
    assert opened.page.locator(".chosen h3").inner_text() == "channel 7"
    opened.page.locator("#in-space").check()
    before = opened.drawn("channel-map", "plot.data[2].x")
    opened.page.locator("#turn").focus()
    opened.page.keyboard.press("End")
    assert before != opened.drawn("channel-map", "plot.data[2].x")
    opened.page.locator("#in-space").uncheck()
    truth = made_up.channels(60)
    at = opened.drawn("channel-map", "plot.data.flatMap((t) => (t.customdata ?? []).map((i, j) => [i, t.x[j]]))")
    for i, x in at:
        assert x == pytest.approx(truth.places[int(i), 0], abs=1e-3)


def test_a_name_that_is_html_stays_a_name(at: Callable[[str], Opened]) -> None:
    page = at("fit").page
    page.fill("#find-channel", "onerror")
    assert page.locator("#matches [role=option]").inner_text() == made_up.EVIL
    page.keyboard.press("Enter")
    assert page.locator(".chosen h3").inner_text() == made_up.EVIL
    page.locator("details.all summary").click()
    page.locator("details.all input[type=search]").fill("onerror")
    page.wait_for_timeout(100)
    assert page.locator("details.all tbody tr:visible").locator("th").all_inner_texts()[0] == made_up.EVIL
    assert page.locator("img").count() == 0 and page.locator("svg image[*|href=x]").count() == 0
    label = page.locator("[data-panel=channel-map] text", has_text="onerror")
    assert label.all_text_contents() == [made_up.EVIL]


def hides(one: dict[str, float], two: dict[str, float]) -> bool:
    across = one["x"] < two["x"] + two["width"] and two["x"] < one["x"] + one["width"]
    return across and one["y"] < two["y"] + two["height"] and two["y"] < one["y"] + one["height"]


@pytest.mark.parametrize("panel", ["channel-map", "places"])
def test_no_name_on_a_map_hides_another(at: Callable[[str], Opened], panel: str) -> None:
    opened = at("crowded")
    for size in (PHONE, WIDE):
        opened.page.set_viewport_size(size)
        opened.page.wait_for_timeout(400)
        texts = opened.page.locator(f"[data-panel={panel}] .textpoint text").all()
        boxes = {text.text_content(): text.bounding_box() for text in texts if text.text_content()}
        assert 3 <= len(boxes) < 30  # there is room for some at every heap, not for all
        assert not [(a, b) for a, b in itertools.combinations(boxes, 2) if hides(boxes[a], boxes[b])]
        assert max(map(len, boxes)) <= 22
        outline = opened.page.locator(f"[data-panel={panel}]").bounding_box()
        assert all(outline["x"] - 1 <= box["x"] <= outline["x"] + outline["width"] for box in boxes.values())


def test_a_filter_hides_rows_and_a_file_has_all(at: Callable[[str], Opened]) -> None:
    page = at("fit").page
    page.evaluate("document.querySelector('details.all').open = true")
    page.locator("details.all input[type=search]").fill("channel 59")
    button = page.locator("details.all button.download")
    assert button.inner_text() == "download CSV (all rows)"
    with page.expect_download() as download:
        button.click()
    assert download.value.suggested_filename == "channels.csv"
    assert len(Path(download.value.path()).read_text().splitlines()) == 61
    page.locator("details.all input[type=search]").fill("")


def test_the_theme_and_the_paper_are_followed(at: Callable[[str], Opened]) -> None:
    opened = at("fit")

    def wait_for_ink(color: str) -> None:
        panel = "document.querySelector('[data-panel=similarity]')"
        opened.page.wait_for_function(f"() => {panel}.layout.font.color === '{color}'", timeout=5000)

    for scheme, ink in (("light", "#1d2126"), ("dark", "#e4e7eb")):
        opened.page.emulate_media(color_scheme=scheme)
        wait_for_ink(ink)
    opened.move_to(2)
    opened.page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = false")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print", color_scheme="dark")
    wait_for_ink("#000000")
    assert opened.page.locator("details:not([open])").count() == 0
    buttons = opened.page.locator("button:visible, input:visible")
    assert all(button.evaluate("(item) => item.closest('th, .near') !== null") for button in buttons.all())
    assert opened.page.locator(".slider output b").inner_text() == "1"
    opened.page.emulate_media(media="screen", color_scheme="light")
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    wait_for_ink("#1d2126")
    assert opened.page.locator("details[open]").count() == 0 < opened.page.locator("details").count()


def test_sliders_of_several_runs_move_together(at: Callable[[str], Opened], run: Run) -> None:
    other = Run(RESULTS / "demo-fresh")
    first, second = page_of(experiment_of(run), run).slider(), page_of(experiment_of(other), other).slider()
    assert first is not None and second is not None
    opened = at("both")
    follower = opened.page.locator("[data-slider='1']")
    sigmas, others = ([position.sigma for position in slider.positions] for slider in (first, second))
    shared, lonely = ([sigma for sigma in sigmas if (sigma in others) == both] for both in (True, False))
    assert shared and lonely
    for sigma in (shared[-1], lonely[0]):
        opened.move_to(sigmas.index(sigma), slider=0)
        assert float(follower.get_attribute("data-sigma")) == shared[-1]  # where there is no such position, it stays
        assert ("behind" in str(follower.get_attribute("class"))) == (sigma in lonely)
    position = next(position for position in second.positions if position.sigma == shared[-1])
    for name, (mean, _, _) in position.measures.items():
        assert opened.shown(slider=1)[name][0] == number(mean)


def test_without_plotly_the_rest_works(browser: Any, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "plotly", lambda: None)
    text = made_up.report_of(run, slider=made_up.slider(60, 4), channel_map=made_up.channels(60))
    assert len(text) < 1e6 and templates.INSTALL in text
    (tmp_path / "still.html").write_text(text)
    with Opened(browser, tmp_path / "still.html") as opened:
        opened.move_to(2)
        assert opened.shown()["mse, test"][:2] == ("1.500", "1.400 to 1.600")
        assert opened.shown()["same group"][1] == ""
        opened.page.fill("#find-channel", "channel 59")
        opened.page.keyboard.press("Enter")
        assert opened.page.locator(".chosen h3").inner_text() == "channel 59"
        assert opened.page.locator(".js-plotly-plot").count() == 0

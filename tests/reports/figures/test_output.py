"""Every figure: whatever the names, as a file, in a page, from any thread, of any table."""

import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from helpers.figure_gallery import TABLES, Example, all_figures
from helpers.figure_reading import assert_inside, points, tables, words
from helpers.report_parts import Page
from matplotlib import image

from placecode.reports import figures

pytestmark = pytest.mark.filterwarnings("error")

EVIL = '$x^_{ <script>alert(1)</script> --> &amp; <b class="x">' * 6
LONG = "a rather long name, option 0.5, of which there is another"


@pytest.mark.parametrize("name", [EVIL, LONG])
def test_every_figure_names_its_run_whatever_its_name(name: str) -> None:
    drawn = all_figures(name)
    page = "".join(figures.svg_text(figure, f"figure-{i}", name) for i, figure in enumerate(drawn))
    assert all(f"run {name[:28]}" in words(figure) for figure in drawn)
    tags = Page(page).tags  # a name that is read as mathematics has failed before
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    used = re.findall(r'(?:href="|url\()#([^")]+)', page)
    assert not {"script", "b", "style", "metadata"} & {tag for tag, _ in tags} and len(ids) == len(set(ids)) > 10
    assert used and set(used) <= set(ids)
    for figure in drawn if name == LONG else ():
        assert_inside(figure)


@pytest.mark.parametrize("example", TABLES.values(), ids=TABLES)
def test_one_seed_has_no_interval_and_says_so(example: Example) -> None:
    figure = example.draw(example.table(1, "a"), "demo")
    figure.draw_without_rendering()
    assert "single seed, so no interval" in words(figure)
    for axes in figure.axes:
        for marks in points(axes).values():
            for bars in (marks.x_bars, marks.y_bars):
                assert bars is None or np.ptp(bars, axis=1).max(initial=0) == 0
    assert "over 4 seeds" in words(example.draw(example.table(4, "a"), "demo"))


@pytest.mark.parametrize("example", TABLES.values(), ids=TABLES)
def test_values_that_are_missing_are_left_out_and_counted(example: Example) -> None:
    """The same picture as if their rows were not there; and none of it without the missing ones."""
    whole = example.table(4, "a")
    holes = whole.copy()
    holes.loc[[1, 6], example.values[-1]] = [np.nan, np.inf]
    figure, without = example.draw(holes, "demo"), example.draw(whole.drop(index=[1, 6]), "demo")
    assert f"2 of {len(whole)} values are missing" in words(figure)
    assert "missing" not in words(without)
    for axes, other in zip(figure.axes, without.axes, strict=True):
        for ours, theirs in zip(axes.lines, other.lines, strict=True):
            np.testing.assert_array_equal(ours.get_xydata(), theirs.get_xydata())
    figure.draw_without_rendering()


@pytest.mark.parametrize("example", TABLES.values(), ids=TABLES)
def test_tables_without_any_value_can_be_drawn(example: Example) -> None:
    whole = example.table(3, "a")
    lost, empty = whole.assign(**dict.fromkeys(example.values, np.nan)), whole.iloc[:0]
    for table in (lost, empty, empty.astype(object)):
        figure = example.draw(table, "demo")
        figure.draw_without_rendering()
        assert "no values" in words(figure) and "run demo" in words(figure)
    assert "no values" not in words(example.draw(whole, "demo"))


@pytest.mark.parametrize("example", TABLES.values(), ids=TABLES)
def test_one_thing_that_is_lost_leaves_the_others(example: Example) -> None:
    whole = example.table(3, "a")
    whole.loc[whole.iloc[:, 0] == whole.iloc[0, 0], list(example.values)] = np.nan
    panels = example.draw(whole, "demo").axes
    drawn = [line.get_xdata() for axes in panels for line in axes.lines]
    assert any(map(len, [*drawn, *(np.ma.compressed(image.get_array()) for axes in panels for image in axes.images)]))


def test_png_is_whole_and_at_150_dpi(tmp_path: Path) -> None:
    figure = figures.accuracy_by_sigma(*tables(), "demo")
    figures.save(figure, tmp_path / "figure.png")
    height, width = image.imread(tmp_path / "figure.png").shape[:2]
    assert (width, height) == tuple((figure.get_size_inches() * 150).astype(int))
    assert [path.name for path in tmp_path.iterdir()] == ["figure.png"]


def test_letters_that_the_font_lacks_are_no_warning(tmp_path: Path) -> None:
    """And other warnings are still given."""
    name = "温度 \U0001f9e0"
    figure = figures.accuracy_by_sigma(*tables(), name)
    figures.save(figure, tmp_path / "figure.png")
    assert name in figures.svg_text(figure)
    figure.draw = lambda renderer: warnings.warn("something else", stacklevel=1)  # type: ignore[method-assign]
    for write in (figures.svg_text, lambda figure: figures.save(figure, tmp_path / "figure.png")):
        with pytest.raises(UserWarning, match="something else"):
            write(figure)


def test_svg_is_the_same_every_time_and_leaves_no_trace() -> None:
    before = dict(matplotlib.rcParams)
    first, second = (figures.svg_text(figures.accuracy_by_sigma(*tables(), "demo"), "a") for _ in range(2))
    assert first == second
    assert dict(matplotlib.rcParams) == before
    assert first.startswith("<svg ")


def test_svg_colours_follow_the_page() -> None:
    text = figures.svg_text(figures.accuracy_by_sigma(*tables(), "demo"))
    assert "currentColor" in text
    assert "var(--figure-blue, #0072B2)" in text
    assert figures.INK not in text


def test_figures_can_be_made_in_threads() -> None:
    def draw(number: int = 0) -> str:
        return figures.svg_text(figures.accuracy_by_sigma(*tables(), "demo"), "a")

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(draw, range(4))) == [draw()] * 4

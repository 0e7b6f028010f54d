"""Every figure: whatever the names, as a file, in a page, from any thread, of any table."""

import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from helpers.figure_gallery import TABLES, all_figures
from helpers.figure_reading import assert_inside, points, tables, words
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
    html = Ids(page)  # a name that is read as mathematics has failed before
    assert not {"script", "b", "style", "metadata"} & html.tags and len(html.ids) == len(set(html.ids)) > 10
    assert html.used and html.used <= set(html.ids)
    for figure in drawn if name == LONG else ():
        assert_inside(figure)


@pytest.mark.parametrize("kind", TABLES)
def test_one_seed_has_no_interval_and_says_so(kind: str) -> None:
    draw, table = TABLES[kind].draw, TABLES[kind].table
    figure = draw(table(1, "a"), "demo")
    figure.draw_without_rendering()
    assert "single seed, so no interval" in words(figure)
    for axes in figure.axes:
        for marks in points(axes).values():
            for bars in (marks.x_bars, marks.y_bars):
                assert bars is None or np.ptp(bars, axis=1).max(initial=0) == 0
    assert "over 4 seeds" in words(draw(table(4, "a"), "demo"))


@pytest.mark.parametrize("kind", TABLES)
def test_values_that_are_missing_are_left_out_and_counted(kind: str) -> None:
    """The same picture as if their rows were not there; and none of it without the missing ones."""
    draw, table, values = TABLES[kind].draw, TABLES[kind].table, TABLES[kind].values
    whole = table(4, "a")
    holes = whole.copy()
    holes.loc[[1, 6], values[-1]] = [np.nan, np.inf]
    figure, without = draw(holes, "demo"), draw(whole.drop(index=[1, 6]), "demo")
    assert f"2 of {len(whole)} values are missing" in words(figure)
    assert "missing" not in words(without)
    for axes, other in zip(figure.axes, without.axes, strict=True):
        for ours, theirs in zip(axes.lines, other.lines, strict=True):
            np.testing.assert_array_equal(ours.get_xydata(), theirs.get_xydata())
    figure.draw_without_rendering()


@pytest.mark.parametrize("kind", TABLES)
def test_tables_without_any_value_can_be_drawn(kind: str) -> None:
    draw, table, values = TABLES[kind].draw, TABLES[kind].table, TABLES[kind].values
    lost, empty = table(3, "a").assign(**dict.fromkeys(values, np.nan)), table(3, "a").iloc[:0]
    for figure in (draw(lost, "demo"), draw(empty, "demo"), draw(empty.astype(object), "demo")):
        figure.draw_without_rendering()
        assert "no values" in words(figure) and "run demo" in words(figure)
    assert "no values" not in words(draw(table(3, "a"), "demo"))


@pytest.mark.parametrize("kind", TABLES)
def test_one_thing_that_is_lost_leaves_the_others(kind: str) -> None:
    draw, table, values = TABLES[kind].draw, TABLES[kind].table, TABLES[kind].values
    whole = table(3, "a")
    whole.loc[whole.iloc[:, 0] == whole.iloc[0, 0], list(values)] = np.nan
    figure = draw(whole, "demo")
    assert any(len(line.get_xdata()) for axes in figure.axes for line in axes.lines)


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


class Ids(HTMLParser):
    """Collects ids, the ids that are referred to, and tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.used: set[str] = set()
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name.endswith("href") and str(value).startswith("#"):
                self.used.add(str(value)[1:])
            else:
                self.used |= set(re.findall(r"url\(#([^)]+)\)", str(value)))


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

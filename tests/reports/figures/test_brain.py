"""Regions lie where their coordinates say, left on the left, and groups that are the same have the same colour."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.brain_people import EXTRA
from helpers.figure_reading import words
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

from placecode.data.packages import import_optional
from placecode.errors import BadInput
from placecode.reports import figures
from placecode.reports.figures.base import BLUE, INK, MUTED, PAPER
from placecode.reports.figures.brain import GREY, PALETTE, VIEWS, matched

pytestmark = pytest.mark.filterwarnings("error")

HALF = np.array([[-30.0, 40, 10], [-50, -20, 20], [-20, -70, 0], [-40, 10, -20]])
PLACES = np.concatenate([HALF, HALF * [-1, 1, 1], [[0.0, -30, 30]]])  # four pairs, and one region in the middle
MIRROR = np.array([4, 5, 6, 7, 0, 1, 2, 3, -1])
PAIRS = np.array([0, 0, 1, 1, 0, 0, 1, 1, -1])


@pytest.fixture
def nilearn() -> Any:
    return pytest.importorskip("nilearn.plotting", reason=EXTRA)


def brains(figure: Figure) -> list[dict[str, Axes]]:
    """The views of each row, by their names."""
    drawn = [axes for axes in figure.axes if any(isinstance(patch, PathPatch) for patch in axes.patches)]
    names = [view.title for view in VIEWS]
    rows = [drawn[i : i + len(names)] for i in range(0, len(drawn), len(names))]
    return [dict(zip(names, row, strict=True)) for row in rows]


def markers(axes: Axes) -> dict[tuple[float, ...], str]:
    """The face colour of each marker, by its place."""
    (dots,) = [dots for dots in axes.collections if isinstance(dots, PathCollection)]
    faces = [to_hex(color) for color in dots.get_facecolors()]
    return dict(zip((tuple(place) for place in np.asarray(dots.get_offsets()).tolist()), faces, strict=True))


def lines(axes: Axes) -> dict[str, set[frozenset[tuple[float, ...]]]]:
    """Between which places lines are drawn, by their colour."""
    bundles = [bundle for bundle in axes.collections if isinstance(bundle, LineCollection)]
    ends = [{frozenset(map(tuple, segment.tolist())) for segment in bundle.get_segments()} for bundle in bundles]
    return {to_hex(bundle.get_color()[0]): pairs for bundle, pairs in zip(bundles, ends, strict=True) if pairs}


def drawn(maps: dict[str, Any] | None = None, near: Any = MIRROR, **more: Any) -> Figure:
    maps = {"one": PAIRS} if maps is None else maps
    options = {"coordinates": PLACES, "neighbors": dict.fromkeys(maps, near), "partner": MIRROR, **more}
    return figures.regions_on_brain(maps, run_name="demo", **options)


@pytest.mark.parametrize(
    ("maps", "last"),
    [
        ([[5, 3, 3, 3, 9, 9, -1]], [2, 0, 0, 0, 1, 1, -1]),  # the first map has its colours in order of size
        ([[0, 0, 0, 1, 1, -1, -1], [-1, -1, -1, 4, 4, 5, 6]], [-1, -1, -1, 1, 1, 0, 2]),  # new ones take what is left
        ([[0, 0, 0, -1, -1], [0, 0, 0, 1, 1], [-1, -1, -1, 0, 0]], [-1, -1, -1, 1, 1]),  # all maps before count
        ([[]], []),
        ([[-1, -1, -1], [0, 0, 1]], [0, 0, 1]),
    ],
)
def test_colors_of_groups(maps: list[list[int]], last: list[int]) -> None:
    assert matched([np.array(numbers, dtype=np.int64) for numbers in maps])[-1].tolist() == last


def test_no_other_assignment_keeps_more_regions() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        maps = [rng.integers(-1, 4, 30) for _ in range(3)]
        *before, last = matched(maps)
        kept = sum(int(((last == row) & (row >= 0)).sum()) for row in before)
        for order in itertools.permutations(range(GREY), 4):
            other = np.where(maps[2] < 0, -1, np.array(order)[maps[2]])
            assert sum(int(((other == row) & (row >= 0)).sum()) for row in before) <= kept


def test_small_groups_beyond_the_palette_are_grey() -> None:
    numbers = np.repeat(np.arange(GREY + 2), np.arange(GREY + 2, 0, -1))  # sizes 8, 7, ... 1
    colors, again = matched([numbers, GREY + 1 - numbers])
    assert (colors == np.minimum(numbers, GREY)).all() and (again == colors).all()
    assert len({color for color, _ in PALETTE}) == len({marker for _, marker in PALETTE}) == len(PALETTE)


def test_without_nilearn_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words in which tasks say it."""
    monkeypatch.setitem(sys.modules, "nilearn.plotting.displays", None)
    with pytest.raises(BadInput) as expected:
        import_optional("nilearn.plotting.displays", "Drawing regions on a brain")
    with pytest.raises(BadInput) as refused:
        drawn()
    assert str(refused.value) == str(expected.value)


@pytest.mark.usefixtures("nilearn")
class TestFigure:
    def test_regions_lie_at_their_places_in_the_colors_of_their_groups(self) -> None:
        first, second = brains(drawn({"one": PAIRS, "two": 1 - PAIRS.clip(0)}))
        colors = [[PALETTE[0][0], PALETTE[1][0], PAPER][color] for color in PAIRS]
        sides = {"left side": PLACES[:, 0] <= 0, "right side": PLACES[:, 0] >= 0}
        for name, across in (("left side", 1), ("from behind", 0), ("from above", 0), ("right side", 1)):
            visible = sides.get(name, np.full(9, True))
            flat = PLACES[:, [across, 1 if name == "from above" else 2]]
            expected = {tuple(flat[i].tolist()): colors[i].lower() for i in np.flatnonzero(visible)}
            assert markers(first[name]) == expected and len(markers(second[name])) == len(expected)
        in_the_middle = (0.0, 30.0)
        assert markers(first["from behind"])[in_the_middle] == PAPER  # in no group
        assert markers(second["from behind"])[in_the_middle] == BLUE.lower()

    def test_left_is_left_and_all_views_have_one_scale(self) -> None:
        figure = drawn()
        (views,) = brains(figure)
        figure.draw_without_rendering()
        for name in ("from behind", "from above"):
            letters = {text.get_text(): text.get_window_extent().x0 for text in views[name].texts}
            left, right = (views[name].transData.transform((x, 0))[0] for x in (-60, 60))
            assert left < right and letters["L"] < letters["R"]
        for axes in views.values():
            (x0, y0), (x1, y1) = axes.transData.transform([(0, 0), (10, 10)])
            assert abs(x1 - x0) == pytest.approx(y1 - y0) == pytest.approx(0.105 * figure.dpi)

    def test_lines_join_neighbors_dark_ones_mirror_regions(self) -> None:
        figure = drawn(near=np.array([4, 5, 3, -1, 0, 0, 7, 3, 1]))
        (views,) = brains(figure)
        flat = [tuple(place) for place in PLACES[:, :2].tolist()]
        dark, light = [(0, 4), (1, 5), (7, 3)], [(2, 3), (5, 0), (6, 7), (8, 1)]
        dark_lines, light_lines = ({frozenset((flat[i], flat[j])) for i, j in pairs} for pairs in (dark, light))
        assert lines(views["from above"]) == {INK: dark_lines, MUTED: light_lines}
        texts = words(figure).replace("\n", " ")
        assert "nearest neighbour is the mirror region: 4 of 7" in texts  # one has no neighbour, one no mirror region
        assert all(lines(axes) == {} for axes in brains(drawn(near=np.full(9, -1)))[0].values())

    @pytest.mark.parametrize("rows", [1, 4])
    def test_nothing_is_cut_and_no_words_overlap(self, rows: int) -> None:
        rng = np.random.default_rng(rows)
        title = "a title that is longer than anyone would like it to be, {} and ninety letters, all in all"
        maps = {title.format(i): rng.integers(-1, 12, 94) for i in range(rows)}
        places, near = rng.uniform(-40, 40, (94, 3)), rng.integers(-1, 94, 94)
        figure = drawn(maps, near, coordinates=places, partner=rng.permutation(94), note="x $^_ " * 90)
        figure.draw_without_rendering()
        texts = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
        boxes = [text.get_window_extent() for text in texts]
        for box in boxes:
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))

    def test_diverged_members_and_no_regions_are_drawn(self) -> None:
        lost = drawn({"one": np.full(9, -1), "two": PAIRS})
        assert "9 in no group" in words(lost)
        for figure in (lost, drawn({"one": PAIRS[:0]}, MIRROR[:0], coordinates=PLACES[:0], partner=MIRROR[:0])):
            figure.draw_without_rendering()

    def test_pictures_are_the_same_each_time_and_leave_nothing_in_pyplot(self) -> None:
        from matplotlib import pyplot

        before = pyplot.get_fignums()
        assert figures.svg_text(drawn()) == figures.svg_text(drawn())
        assert pyplot.get_fignums() == before

    def test_a_fresh_process_draws_without_a_warning(self, tmp_path: Path) -> None:
        """What nilearn says when it is imported would be said in the first figure only."""
        code = f"""
from pathlib import Path
import numpy as np
from placecode.reports import figures
two = np.array([0, 1])
figure = figures.regions_on_brain({{"one": two}}, np.array([[-9., 0, 0], [9, 0, 0]]), "demo", {{"one": two}}, two)
figures.save(figure, Path({str(tmp_path / "one.png")!r}))
"""
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert (tmp_path / "one.png").stat().st_size > 10_000

"""The page: what it says is compared with the run behind it; what it must not contain is looked for."""

import base64
import hashlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import report_parts as made_up
from helpers.report_parts import CLAIM, CLASSES, DASH, SPLITS, Page, made_up_page, make, plus_minus, report_of, shown

from placecode.reports import html as report
from placecode.reports.html import packing, tables, templates
from placecode.reports.html.tables import MISSING
from placecode.reports.pages.interactive import Listing


def test_main_table_holds_every_mean_with_its_interval(tmp_path: Path) -> None:
    run = make(tmp_path)
    head, *body = Page(report_of(run)).table("Accuracy at the final step: mean")
    assert head == ["encoding", "\N{GREEK SMALL LETTER SIGMA}", *SPLITS, "seeds", "diverged"]
    last = run.metrics[(run.metrics["step"] == 9) & (run.metrics["condition"] == "all")]
    for row, sigma, numbers in zip(body, ("0.2", "2"), ([0, 1, 2], [3, 4, 5]), strict=True):
        chosen = last[last["member"].isin(numbers)]
        expected = [plus_minus(chosen.loc[chosen["split"] == split, "value"].to_numpy()) for split in SPLITS]
        assert row == ["learned", sigma, *expected, "3", "0"]


def test_condition_table_holds_the_held_out_splits(tmp_path: Path) -> None:
    run = make(tmp_path)
    groups, head, first, _ = Page(report_of(run)).table("Accuracy at the final step, mean")
    assert groups == ["", "test", "ood"]
    assert head[2] == "seeds" and first[2] == "3"
    assert sorted(head[3:6]) == sorted(CLASSES)
    last = run.metrics[(run.metrics["step"] == 9) & (run.metrics["member"] < 3) & (run.metrics["split"] == "ood")]
    for name, cell in zip(head[6:], first[6:], strict=True):
        assert cell == plus_minus(last.loc[last["condition"] == name, "value"].to_numpy())


def test_analyses_stand_beside_their_value_before_training(tmp_path: Path) -> None:
    run = make(tmp_path)
    groups, head, first, second = Page(report_of(run)).table("Before and after training")
    assert groups == ["", "procrustes (2d-fixed)", "procrustes_raw (2d-fixed)", "rsa (2d-fixed)"]
    assert head[2:] == ["seeds", *["before", "after"] * 3]
    assert first[2] == second[2] == "3"
    whole = run.analysis[run.analysis["block"] == -1]
    columns = [(name, step) for name in ("procrustes", "procrustes_raw", "rsa") for step in (0, 9)]
    for row, numbers in ((first, range(3)), (second, range(3, 6))):
        for cell, (name, step) in zip(row[3:], columns, strict=True):
            chosen = whole[(whole["analysis"] == name) & (whole["step"] == step) & whole["member"].isin(numbers)]
            assert cell == plus_minus(chosen["value"].to_numpy(), 1 if name == "procrustes_raw" else 3)
    run.analysis.loc[run.analysis["member"] < 3, "value"] = math.nan
    first, second = Page(report_of(run)).table("Before and after")[2:]
    assert first[3:] == [DASH] * 6 and DASH not in second


def test_what_pairs_share_members_has_no_interval(tmp_path: Path) -> None:
    """Of two seeds both have the same pair: an interval over members would have no width at all."""
    run = make(tmp_path, seeds=2)
    run.analysis.loc[run.analysis["analysis"] == "rsa", "analysis"] = "stability"
    run.analysis.loc[run.analysis["analysis"] == "stability", "value"] = 0.761
    (table,) = tables.analyses(run)
    assert [cell.text for cell in table.rows[0][-2:]] == ["0.761", "0.761"]
    assert "\N{PLUS-MINUS SIGN}" in table.rows[0][3].text and table.rows[0][2].text == "2"


def test_encodings_without_sigma_are_found_again(tmp_path: Path) -> None:
    """A summary has no sigma for them, whatever their spec says; and options are columns of their own."""
    run = make(tmp_path)
    run.members.loc[3:, "encoding"] = "sinusoid"
    run.members.loc[3:, "options"] = '{"axes": 2}'
    for row in run.summary:
        row["axes"] = None
        if row["sigma"] == 2.0:
            row.update(encoding="sinusoid", sigma=None, axes=2)
    page = Page(report_of(run))
    settings = [["learned", "0.2", DASH], ["sinusoid", DASH, "2"]]
    assert [row[:3] for row in page.table("Before and after")[2:]] == settings
    assert [row[:3] for row in page.table("Accuracy at the final step: mean")[1:]] == settings


def test_everything_needed_to_run_it_again_is_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("x" * 1234)
    (tmp_path / ".half-written").write_text("")
    (tmp_path / "figures").mkdir()
    page = Page(report_of(make(tmp_path), command="placecode run lst-sigma --seeds 0,1,2"))
    assert "placecode run lst-sigma --seeds 0,1,2" in page.text
    fields = {"sigmas": "0.2, 2", "epochs": "120", "puzzles": DASH, "learning_rate": "0.0001", "resume": "yes"}
    assert dict(page.table("Every field")[1:]) == fields
    whole = dict(page.table("The run as a whole")[1:])
    assert whole["experiment"] == "lst-sigma" and whole["task / counts / ood"] == "108"
    assert whole["task / sha256"] == "ab" * 32
    assert ["versions / torch", "2.13.0"] in page.table("Versions")
    files = {row[0]: row[1:] for row in page.table("In the folder")[1:]}
    assert files["config.json"] == ["1.23 kB", "every field of the experiment"]
    assert files["report.html"] == [DASH, "this page"]
    assert set(files) == {"config.json", "figures/", "report.html"}
    assert "arXiv:2406.08272" in page.text


def test_lead_figures_and_sections_are_there(tmp_path: Path) -> None:
    run = make(tmp_path)
    listing = Listing("Claims", "Claims of the paper.", ["claim", "effect"], [["small wins", 0.6]])
    page = Page(report_of(run, listings=[listing], figures=[shown(run, "a", "A", "Look.")]))
    assert "One." in page.text and page.table("Claims") == [["claim", "effect"], ["small wins", "0.6"]]
    drawings = [(attributes["role"], attributes["aria-label"]) for tag, attributes in page.tags if tag == "svg"]
    assert drawings == [("img", "A. Look.")]


def test_claims_that_cannot_be_tested_are_counted(tmp_path: Path) -> None:
    """And where none can be tested, there is no table of them."""
    tested = {**CLAIM, "remark": "a remark", "published": 0.9, "number": "no match", "number_text": "no match (0.9)"}
    few = {**tested, "statement": "And so.", "low": None, "high": None, "note": "too few seeds"}
    few |= {"direction": "undecided", "direction_text": "undecided", "number": "", "number_text": "- (0.9)"}
    untested = {**few, "statement": "Or so.", "effect": None, "note": "no such members"}
    run = make(tmp_path)
    page = Page(report_of(run, claims=[tested, untested, few]))
    source = "paper; a remark"
    assert page.table("Direction:")[1:] == [
        ["reproduced", "no match (0.9)", "0.700", "0.600 to 0.800", "above 0.500", "It is so.", source],
        ["undecided", "- (0.9)", "0.700", MISSING, "above 0.500", "And so. (too few seeds)", source],
    ]
    assert "1 more cannot be tested with this run" in page.text
    assert "Claims" not in Page(report_of(run, claims=[untested])).text


def test_write_leaves_page_and_images_in_the_folder(tmp_path: Path) -> None:
    run = make(tmp_path)
    made = made_up_page(run, lead=[], figures=[shown(run, "accuracy", "Accuracy", "Look.")])
    path = report.write(made, "placecode run lst-sigma")
    assert path == tmp_path / "report.html"
    first = path.read_text()
    Page(first)
    assert (tmp_path / "figures" / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    report.write(made, "placecode run lst-sigma")
    assert path.read_text() == first


def test_the_top_is_short_and_the_rest_is_folded(tmp_path: Path) -> None:
    sentences = [f"Sentence {i}." for i in range(36)]
    text = report_of(make(tmp_path), lead=["In short."], sentences=sentences)
    opening, folded = text[: text.index("<details")], text[text.index("<details") : text.index("<nav")]
    assert "In short." in opening and "Sentence" not in opening
    assert all(sentence in folded for sentence in sentences)


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    run = make(tmp_path)
    text = report_of(run, figures=[shown(run, "accuracy", "Accuracy", "Look.")])
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        for name, value in attributes.items():
            assert name not in ("src", "srcset", "poster", "data", "action"), (tag, value)
            if name.endswith("href"):
                allowed = r"https://arxiv\.org/abs/2406\.08272" if tag == "a" else r"data:image/png;base64,"
                assert re.match(rf"#|{allowed}", str(value)), (tag, value)
            assert not name.startswith("on")
    assert not re.search(r"@import|https?:|url\(", text[text.index("<style>") : text.index("</style>")])
    (policy,) = [a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a]
    assert str(policy).startswith("default-src 'none'")


def test_names_from_data_are_escaped(tmp_path: Path) -> None:
    evil = '<script>alert("1")</script><img src=x onerror=alert(1)> --> \'$'
    run = make(tmp_path / "run <script> $x^ folder")
    run.members["encoding"] = evil
    run.summary = [{**row, "encoding": evil} for row in run.summary]
    run.summary += [{**row, "condition": evil} for row in run.summary]
    run.analysis["target"] = evil
    run.analysis["analysis"] = evil
    run.config |= {"experiment": evil, "fields": {evil: [evil]}, "task": {evil: evil}}
    run.environment = {evil: {evil: evil}}
    parts = {"figures": [shown(run, "f", evil, evil)], "listings": [Listing(evil, evil, [evil], [[evil]])]}
    page = Page(report_of(run, title=evil, lead=[evil], command=evil, **parts))
    assert [a.get("type") for tag, a in page.tags if tag == "script"] == ["application/json", None]
    assert not any(tag == "img" for tag, _ in page.tags)
    assert page.text.count(evil) > 15


def test_only_its_own_script_may_run(tmp_path: Path) -> None:
    """Its own, and plotly's where something moves; data are no script."""
    run = make(tmp_path)
    for text, count in ((report_of(run), 1), (report_of(run, slider=made_up.slider(9, 3)), 2)):
        scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
        allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
        assert len(scripts) == count and f'script-src {allowed}"' in text


def test_without_plotly_the_page_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that train have none."""
    assert not re.findall(r"^(?:import|from) plotly", Path(str(templates.__file__)).read_text(), flags=re.MULTILINE)
    templates.plotly.cache_clear()
    monkeypatch.setattr(templates, "find_spec", lambda name: None)
    text = report_of(make(tmp_path), slider=made_up.slider(9, 3))
    templates.plotly.cache_clear()
    assert len(text) < 200_000 and templates.INSTALL in text


def test_ids_are_unique_and_every_link_lands(tmp_path: Path) -> None:
    run = make(tmp_path)
    moving = {"slider": made_up.slider(9, 3), "channel_map": made_up.channels(20)}
    page = Page(report_of(run, figures=[shown(run, name, name, "") for name in ("one", "two")], **moving))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {str(a[name])[1:] for _, a in page.tags for name in a if name.endswith("href") and str(a[name])[0] == "#"}
    assert targets <= set(ids)


def test_the_page_is_accessible(tmp_path: Path) -> None:
    page = Page(report_of(make(tmp_path)))
    tags = [tag for tag, _ in page.tags]
    assert ("html", {"lang": "en"}) in page.tags
    assert tags.count("h1") == 1 and tags.count("caption") == tags.count("table") > 4
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    page = Page(report_of(make(tmp_path, seeds=1)))
    for start in ("Accuracy at the final step: mean", "Before and after"):
        assert "±" not in "".join(map("".join, page.table(start)))
    assert not any("nan" in cell for table in page.tables for row in table["rows"] for cell in row)


def test_diverged_members_are_counted_and_left_out(tmp_path: Path) -> None:
    run = make(tmp_path, diverged=(0, 3, 4, 5))
    run.analysis.loc[run.analysis["member"].isin([0, 3, 4, 5]), "value"] = 999.0
    page = Page(report_of(run))
    _, first, second = page.table("Accuracy at the final step: mean")
    assert first[-2:] == ["2", "1"]
    assert second == ["learned", "2", DASH, DASH, DASH, "0", "3"]
    whole = run.analysis[(run.analysis["block"] == -1) & run.analysis["member"].isin([1, 2])]
    after = whole[(whole["analysis"] == "rsa") & (whole["step"] == 9)]["value"].to_numpy()
    (row,) = page.table("Before and after")[2:]
    assert row[-1] == plus_minus(after)


def test_what_was_not_measured_is_left_out_and_single_blocks_are_averaged(tmp_path: Path) -> None:
    run = make(tmp_path, sigmas=(0.2,))
    run.analysis = run.analysis[run.analysis["block"] == 0]
    assert tables.analyses(run)[0].rows[0][3].text == "777.0 ± 0.0"
    run.analysis = run.analysis.iloc[:0]
    run.summary = [row for row in run.summary if row["condition"] == "all"]
    page = Page(report_of(run))
    assert not re.findall(r"The encodings|by condition|Figures", page.text)
    assert len(page.table("Accuracy at the final step: mean")) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, DASH),
        (math.nan, DASH),
        (0.1, "0.1"),
        (1e-4, "0.0001"),
        (True, "yes"),
        (12, "12"),
        ([], DASH),
        ([[0, 1], [2, 3]], "(0, 1), (2, 3)"),
        (list(range(100)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ..., 99, 100 in all"),
    ],
)
def test_values_read_well(value: object, text: str) -> None:
    assert tables.value(value).text == text


def test_a_listing_is_shown_rounded_and_sorted_in_full() -> None:
    rows = [["<b>", 0.123456], ["b", -2.5], ["c", None], ["d", 3]]
    table = tables.listing(Listing("A title", "About <it>.", ["name", "value"], rows))
    assert (tables.number(-0.5), tables.number(-0.0001)) == ("\N{MINUS SIGN}0.500", "0.000")
    assert (table.caption, list(table.columns)) == ("About <it>.", ["name", "value"])
    texts = [[cell.text for cell in row] for row in table.rows]
    assert [row[1] for row in texts] == ["0.1235", "\N{MINUS SIGN}2.5", MISSING, "3"]
    assert table.rows[0][1].sort_key == 0.123456 and table.rows[1][1].sort_key == -2.5


def read(text: str, scale: float, steps: int) -> np.ndarray:
    """As the page's script reads it."""
    whole = np.frombuffer(base64.b64decode(text), dtype="<u1" if steps < 256 else "<u2").astype(float)
    return np.where(whole == 0, np.nan, (whole - 1 - steps) / steps * scale)


@pytest.mark.parametrize("steps", [packing.STEPS, packing.FINE])
def test_values_come_back_to_half_a_step(steps: int) -> None:
    values = np.random.default_rng(0).uniform(-3, 3, (7, 7))
    values[0, :3] = 3.0, -3.0, 0.0
    back = read(str(packing.packed(values, 3.0, steps)), 3.0, steps).reshape(7, 7)
    assert np.abs(back - values).max() <= 1.5 / steps + 1e-12
    assert back[0, :3].tolist() == [3.0, -3.0, 0.0]  # the ends and zero are exact


def test_what_is_missing_stays_missing() -> None:
    back = read(str(packing.packed(np.array([[0.5, np.nan, np.inf]]), 1.0)), 1.0, packing.STEPS)
    assert np.isnan(back).tolist() == [False, True, True]


def test_blocks_are_means() -> None:
    rng = np.random.default_rng(0)
    matrix, order = rng.normal(size=(7, 7)), rng.permutation(7)
    means = packing.block_means(matrix, order, 3)
    sorted_by = matrix[np.ix_(order, order)]
    assert means.shape == (3, 3)
    np.testing.assert_allclose(means[0, 1], sorted_by[:3, 3:6].mean())
    np.testing.assert_allclose(means[2, 2], sorted_by[6, 6])
    np.testing.assert_array_equal(packing.block_means(matrix, order, 1), sorted_by)


@pytest.mark.parametrize(("count", "rows"), [(250, 250), (251, 126), (1000, 250)])
def test_matrices_are_at_most_250_wide(count: int, rows: int) -> None:
    packed = packing.slider(made_up.slider(count, 3, sigmas=(0.1,)))
    position = packed["positions"][0]
    assert len(read(position["similarity"], packed["scales"]["similarity"], packing.STEPS)) == rows**2
    assert len(read(position["places"], packed["scales"]["places"], packing.FINE)) == 2 * count


def test_channels_are_in_the_order_of_their_groups_and_the_groupless_last() -> None:
    assert packing.sort_by_group(np.array([2, -1, 0, 2, 0]), 5).tolist() == [2, 4, 0, 3, 1]
    assert packing.sort_by_group(None, 3).tolist() == [0, 1, 2]


def test_the_diagonal_does_not_set_the_scale() -> None:
    assert packing.slider(made_up.slider(30, 3))["scales"]["similarity"] < 1.2
    faint = made_up.slider(30, 3, sigmas=(0.1,))
    similarity = np.where(np.eye(30, dtype=bool), 1.0, 0.05)
    faint = type(faint)(faint.names, None, (), [type(faint.positions[0])("0.1", 0.1, {}, similarity)], {})
    assert packing.slider(faint)["scales"]["similarity"] == pytest.approx(0.05)


def test_texts_cannot_leave_the_script() -> None:
    data = {"</script><!--": [made_up.EVIL, float("nan"), np.float64(0.5), np.int64(3), None, "\u2028"]}
    text = packing.as_script(data)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"</script><!--": [made_up.EVIL, None, 0.5, 3, None, "\u2028"]}

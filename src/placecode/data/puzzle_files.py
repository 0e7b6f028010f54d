"""Reading, checking, writing and caching of Latin square puzzles as CSV files.

The format is that of the puzzles published by Ito et al. (arXiv 2406.08272). A folder has one file of training puzzles
per class of difficulty (`TRAINING_FILES`) and one file of held-out puzzles (`HELDOUT_FILE`). Generated puzzles are
cached in folders with the same files, so a cached folder can be given to others.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from placecode.data.cells import check_width, read_text
from placecode.data.puzzles import CLASSES, UNSOLVED, Puzzles, are_farther, classify, jaccard_distances, join, solve
from placecode.errors import BadInput

TRAINING_FILES = tuple(f"train_{name.lower()}.csv" for name in CLASSES)
HELDOUT_FILE = "human_puzzles.csv"
FILE_NAMES = (*TRAINING_FILES, HELDOUT_FILE)
HASHES_FILE = "sha256.txt"  # hashes of the other files of a cached folder
HEADER = ("ID", "LST_num", "condition", "puzzles", "solutions")
COLUMNS = HEADER[2:]  # the columns that are read; the others number the puzzles


def read_folder(folder: str | Path, order: int, distance: float) -> tuple[Puzzles, Puzzles]:
    """Return the training puzzles, ordered by class of difficulty, and the held-out puzzles of a folder.

    `order` is the number of rows of a puzzle. Raises `BadInput` if a file is missing or invalid, or if the Jaccard
    distance between a training puzzle and a held-out puzzle is at most `distance`. With smaller distances, the held-out
    puzzles would not test generalization.
    """
    folder = Path(folder)
    missing = [name for name in FILE_NAMES if not os.path.exists(folder / name)]
    if missing:
        raise BadInput(f"{folder} must be a folder with {', '.join(FILE_NAMES)}; missing: {', '.join(missing)}.")
    heldout, heldout_lines = read_puzzles(folder / HELDOUT_FILE, order)
    training = []
    for name, condition in zip(TRAINING_FILES, CLASSES, strict=True):
        puzzles, lines = read_puzzles(folder / name, order, condition)
        for row in np.flatnonzero(~are_farther(puzzles.cells, heldout.cells, distance)):
            distances = jaccard_distances(puzzles.cells[[row]], heldout.cells)[0]
            nearest = int(distances.argmin())
            raise BadInput(
                f"{folder / name}, line {lines[row]}, and {folder / HELDOUT_FILE}, line {heldout_lines[nearest]}: "
                f"their Jaccard distance must be above {distance}; it is {distances[nearest]:.3f}."
            )
        training.append(puzzles)
    return join(training), heldout


def read_puzzles(path: str | Path, order: int, condition: str | None = None) -> tuple[Puzzles, npt.NDArray[np.int64]]:
    """Return the N puzzles of a file, and the line number of each puzzle, (N,).

    If `condition`, a class of difficulty, is not None, all puzzles must be of this class. Raises `BadInput` at the
    first line with an invalid puzzle: one without a unique solution, with a wrong solution or class, or equal to an
    earlier puzzle.
    """
    path = Path(path)
    cells, conditions, answers, lines = [], [], [], []
    for line, (name, text, answer) in _rows(path):
        location = f"{path}, line {line}"
        if name not in CLASSES:
            raise BadInput(f"{location}: condition must be one of {', '.join(CLASSES)}; got {_quoted(name)}.")
        if condition is not None and name != condition:
            raise BadInput(f"{location}: the file is for {condition} puzzles; got condition {name!r}.")
        puzzle = _parse(text, order, location)
        symbols = solve(puzzle)
        if not symbols:
            raise BadInput(f"{location}: the puzzle {text} has no completion to a Latin square.")
        if len(symbols) > 1:
            options = " or ".join(map(str, sorted(symbols)))
            raise BadInput(f"{location}: the puzzle {text} has more than one solution: the target can be {options}.")
        if answer != str(*symbols):
            raise BadInput(f"{location}: the solution of the puzzle {text} is {symbols.pop()}; got {_quoted(answer)}.")
        cells.append(puzzle)
        conditions.append(CLASSES.index(name))
        answers.append(symbols.pop())
        lines.append(line)
    if not cells:
        raise BadInput(f"{path} has a header and no puzzles.")

    puzzles = Puzzles(np.array(cells, dtype=np.uint8), np.array(conditions), np.array(answers))
    classes, _ = classify(puzzles.cells)
    for row in np.flatnonzero(classes != puzzles.classes)[:1]:
        actual = "not solvable in one step" if classes[row] == UNSOLVED else CLASSES[classes[row]]
        stated = CLASSES[puzzles.classes[row]]
        raise BadInput(f"{path}, line {lines[row]}: the puzzle is {actual}; got condition {stated!r}.")
    first: dict[bytes, int] = {}
    for line, puzzle in zip(lines, puzzles.cells, strict=True):
        if first.setdefault(puzzle.tobytes(), line) != line:
            raise BadInput(f"{path}, line {line}: the puzzle is the same as in line {first[puzzle.tobytes()]}.")
    return puzzles, np.array(lines)


def _rows(path: Path) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """Yield the line number and the cells in `COLUMNS` (class, puzzle, solution) of each row that is not empty."""
    text = read_text(path)
    if "\0" in text:
        raise BadInput(f"{path} must be a text file in UTF-8; it has a zero byte.")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not text.strip():
            raise BadInput(f"{path} is empty; it must have the columns {', '.join(HEADER)}.")
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise BadInput(f"{path} must have the columns {', '.join(HEADER)}; missing: {', '.join(missing)}.")
        condition, puzzle, solution = (header.index(name) for name in COLUMNS)
        for row in reader:
            if not row:
                continue
            check_width(path, reader.line_num, row, len(header))
            yield reader.line_num, (row[condition].strip(), row[puzzle].strip(), row[solution].strip())
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: is not a row of a CSV file: {error}.") from error


def _parse(text: str, order: int, location: str) -> list[int]:
    """Return the cells, (n*n,), of a puzzle that is written as n*n digits in row order.

    `location` says where the puzzle is in error messages, such as "a.csv, line 3".
    """
    target = str(order + 1)
    allowed = "".join(map(str, range(order + 2)))
    wrong = next((sign for sign in text if sign not in allowed), None)
    if wrong is not None:
        raise BadInput(f"{location}: a puzzle of order {order} has the digits 0 to {target}; got {_quoted(wrong)}.")
    if len(text) != order**2:
        hint = "; a spreadsheet may have dropped its leading zeros" if len(text) < order**2 else ""
        raise BadInput(f"{location}: a puzzle of order {order} has {order**2} digits; got {len(text)}{hint}.")
    if text.count(target) != 1:
        raise BadInput(f"{location}: a puzzle of order {order} has one target, {target}; got {text.count(target)}.")
    for number in range(order):
        for kind, group in (("row", text[number * order : (number + 1) * order]), ("column", text[number::order])):
            for symbol in allowed[1:]:
                if group.count(symbol) > 1:
                    raise BadInput(f"{location}: the puzzle {text} has symbol {symbol} twice in {kind} {number + 1}.")
    return [int(sign) for sign in text]


def _quoted(value: str) -> str:
    """Return a text from a file in quotes for a message, cut to 40 characters."""
    return repr(value if len(value) <= 40 else value[:37] + "...")


def to_csv(puzzles: Puzzles) -> str:
    """Return puzzles as the text of a CSV file in the published format.

    >>> one = np.array([[1, 2, 3, 5] + 12 * [0]], dtype=np.uint8)
    >>> print(to_csv(Puzzles(one, np.array([0]), np.array([4]))), end="")
    ID,LST_num,condition,puzzles,solutions
    0,,Binary,1235000000000000,4
    """
    rows = zip(puzzles.cells, puzzles.classes, puzzles.solutions, strict=True)
    lines = [f"{i},,{CLASSES[c]},{''.join(map(str, cells))},{s}\n" for i, (cells, c, s) in enumerate(rows)]
    return ",".join(HEADER) + "\n" + "".join(lines)


def write_folder(folder: Path, training: Puzzles, heldout: Puzzles) -> None:
    """Write puzzles to the files of a folder, in the published format, and their SHA-256 hashes to another file.

    The file of hashes is written last. A folder without it, or whose files do not match it, is incomplete.
    """
    from placecode.files import write_bytes  # loads pandas, which training does not need

    parts = [training[training.classes == index] for index in range(len(CLASSES))]
    contents = {name: to_csv(part).encode() for name, part in zip(FILE_NAMES, (*parts, heldout), strict=True)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**contents, HASHES_FILE: _hashes(contents)}.items():
        write_bytes(folder / name, data)


def _hashes(contents: Mapping[str, bytes]) -> bytes:
    """Return the SHA-256 hashes of files as text in the format of `sha256sum`. `contents` maps names to bytes."""
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in contents.items()).encode()


def load_or_make(
    key: str, order: int, distance: float, make: Callable[[], tuple[Puzzles, Puzzles]]
) -> tuple[Puzzles, Puzzles]:
    """Return training and held-out puzzles from the folder named `key` in the cache, or generate them with `make`.

    Generated puzzles are written to the cache. A cached folder is replaced if the hashes are wrong, or if
    `read_folder` rejects the puzzles for this `order` and `distance`. A cache that cannot be read or written is
    ignored.
    """
    with contextlib.suppress(OSError, BadInput):
        folder = cache_folder() / key
        contents = {name: (folder / name).read_bytes() for name in FILE_NAMES}
        if (folder / HASHES_FILE).read_bytes() == _hashes(contents):
            return read_folder(folder, order, distance)
    training, heldout = make()
    with contextlib.suppress(OSError):
        write_folder(cache_folder() / key, training, heldout)
    return training, heldout


def cache_folder() -> Path:
    """Return the folder of the cache: $PLACECODE_CACHE, or "placecode" in the user's cache folder.

    Raises `FileNotFoundError` if the user has no home folder.
    """
    chosen = os.environ.get("PLACECODE_CACHE")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "placecode"
    except RuntimeError as error:  # users in some containers have no home folder
        raise FileNotFoundError("no home folder") from error

"""LearnedPositions: a map of the channels of a table, as a scikit-learn estimator.

>>> from placecode import LearnedPositions
>>> fitted = LearnedPositions().fit(X)  # X (samples, channels): an array, a frame, a mapped file, the path of a table
>>> fitted.verdict_, fitted.p_value_
>>> fitted.map_, fitted.modules_, fitted.neighbors_, fitted.confidence_["channels"]
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import BaseEstimator, TransformerMixin  # type: ignore[import-untyped, unused-ignore]
from sklearn.utils import check_random_state  # type: ignore[import-untyped, unused-ignore]
from sklearn.utils.validation import (  # type: ignore[import-untyped, unused-ignore]
    check_is_fitted,
    validate_data,
)

from placecode.data.cells import as_float32
from placecode.data.tables.files import Sheet, is_single, read_cells, read_sheet, sheet_of
from placecode.data.tables.questions import coded, filled
from placecode.errors import BadInput, must_be
from placecode.execution.where import Where
from placecode.experiments.channels import own_results
from placecode.experiments.channels.own import OwnData
from placecode.fit.fitting import fit
from placecode.models.encoder import Stack
from placecode.reports.pages import own_words
from placecode.runs.read import Run
from placecode.tasks.table import PARTS, Table, tables
from placecode.training.trainer import portions, stack_for

LEAST_CHANNELS = 2
KINDS = [np.float64, np.float32]
"""Of numbers: float64 is kept until what is the same in all samples is taken off."""
LEAST = {
    **{"n_seeds": 1, "n_halves": 0, "steps": 1, "batch": 1, "width": 1, "layers": 1},
    **{"neighbors": 1, "n_draws": 19},
}
"""Of parameters that are whole numbers."""


class LearnedPositions(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns where the channels of a table live: small transformers predict hidden channels from the others, and have
    to find out by their positional encodings (PEs) which channels go together.

    Several PEs are trained at once: a few initial scales sigma, other seeds, and either half of the samples. What they
    agree on can be trusted.

    Parameters
    ----------
    sigma : "auto", a number, or a list of numbers
        Initial scales of the PE. With several ("auto": 0.01, 0.05, 0.2, and more with more effort), the one is taken
        whose PEs agree most with each other, among those within one standard error of the lowest validation error.
    effort : "auto", "quick" or "thorough"
        How large the models are and how long they are trained. "auto" is thorough on a GPU and quick on a CPU.
    hidden : share of the channels that are hidden.
    n_seeds, n_halves : models that learn from all training samples, and from either half of them, for each sigma.
    steps, batch, width, layers, learning_rate : of the models; None: what suits effort and channels.
    neighbors : how many nearest channels count as neighbours.
    n_draws : shifts of the channels against each other by which chance is told.
    device : "auto", "cpu" or "cuda".
    random_state : decides the split of the samples and all draws of the models.
    folder : where to keep the run, in place of an earlier fit; None: nowhere.

    Attributes
    ----------
    embedding_ : (n, d) the channels' PEs, the mean over seeds after alignment, widest axis first
    similarity_ : (n, n) cosine similarity of the channels' centred PEs (mean over channels removed), averaged over
        all fits
    map_, map_3d_ : (n, 2), (n, 3) places of the channels
    modules_ : (n,) group of each channel, as many groups as are found again by every fit; `module_stability_`: how
        surely, by their number
    neighbors_ : (n, neighbors) the nearest channels of each, the nearest first
    confidence_ : "channels" (n,), how surely each lies where it does; "pairs" (n, n), how surely two are neighbours
    p_value_ : how often channels that are shifted against each other are predicted as well as the true ones
    verdict_ : "structure found" or "no structure found"; `summary_`: all findings in sentences
    scores_ : held-out errors: "heldout_mse", "linear_mse", "mean_mse"; `baselines_`: the same of other methods
    sigma_, sigma_reason_, sigmas_ : the chosen sigma, why, and by which numbers
    channels_ : (n,) which of `feature_names_in_` are behind all of this: those that vary

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 6)) + np.repeat([[0], [2]], 200, axis=0)
    >>> small = LearnedPositions(sigma=0.05, steps=20, n_seeds=1, n_draws=19, device="cpu")
    >>> small.fit(X).map_.shape
    (6, 2)
    """

    def __init__(
        self,
        sigma: Any = "auto",
        *,
        effort: str = "auto",
        hidden: float = 0.3,
        n_seeds: int | None = None,
        n_halves: int | None = None,
        steps: int | None = None,
        batch: int | None = None,
        width: int | None = None,
        layers: int | None = None,
        learning_rate: float | None = None,
        neighbors: int = 4,
        n_draws: int = 199,
        device: str = "auto",
        random_state: Any = 0,
        folder: Any = None,
    ) -> None:
        self.sigma = sigma
        self.effort = effort
        self.hidden = hidden
        self.n_seeds = n_seeds
        self.n_halves = n_halves
        self.steps = steps
        self.batch = batch
        self.width = width
        self.layers = layers
        self.learning_rate = learning_rate
        self.neighbors = neighbors
        self.n_draws = n_draws
        self.device = device
        self.random_state = random_state
        self.folder = folder

    # ---------------------------------------------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:  # noqa: N803
        """Learn the map. X (samples, channels) may have missing values (NaN, or masked) and, as a frame, columns of
        categories; a path is read piece by piece, a mapped array as it is needed. `groups` (samples,), or the name of a
        column, says which samples belong together (a person, a day): whole groups are held out. A first column that
        counts the rows evenly under a name such as "time" or "id", or what pandas writes as the index, is no channel,
        in a frame as in a file. y is not used."""
        self._check()
        where = Where(self.device).resolved()
        effort = OwnData.effort_on(where.device, self.effort)
        with self._room() as (out, spool):
            sheet = self._sheet(X, groups, spool)
            seed = self._seed()
            made = tables(
                sheet.values,
                names=sheet.names,
                categories=sheet.categories,
                groups=sheet.groups,
                ratios=(self.hidden,),
                seed=seed,
            )
            if made[PARTS[0]].tokens < LEAST_CHANNELS:
                raise BadInput("at least two channels must vary; the others are constant or missing.")
            given = self._given(seed, effort, made[PARTS[0]].tokens)
            file = str(X) if isinstance(X, (str, Path)) else sheet.source
            named = "" if groups is None or not (isinstance(groups, Path) or is_single(groups)) else str(groups)
            study = OwnData(tables=made, file=file, groups=named, **given)
            found = fit(study, out, effort=effort, where=where, force=_is_fit(out))
            self._keep(study, made[PARTS[0]], out)
        self.embedding_, self.similarity_ = found.embedding, found.ours.similarity
        self.map_, self.map_3d_ = found.ours.maps[2], found.ours.maps.get(3)
        self.modules_, self.module_stability_ = found.ours.labels, dict(found.stability)
        self.neighbors_ = found.neighbors
        self.confidence_ = {"channels": found.confidence, "pairs": found.pairs}
        self.p_value_, self.verdict_, self.summary_ = found.p_value, found.verdict, own_words.sentences(found)
        self.sigma_, self.sigma_reason_, self.sigmas_ = found.sigma, found.why, list(found.sigmas)
        self.scores_ = {name: getattr(found, name) for name in ("heldout_mse", "linear_mse", "mean_mse")}
        self.baselines_ = {name: dict(method.scores) for name, method in found.others.items()}
        self.channels_, self.names_ = made[PARTS[0]].columns.kept, found.names
        self._offsets: npt.NDArray[np.float64] = sheet.offsets[self.channels_]
        return self

    @contextlib.contextmanager
    def _room(self) -> Iterator[tuple[Path, Path]]:
        """The folder of the run, and one for what is too large for memory."""
        with tempfile.TemporaryDirectory(prefix="placecode-") as temporary:
            out = Path(temporary) / "run" if self.folder is None else Path(self.folder)
            yield out, Path(temporary)

    def _sheet(self, X: Any, groups: Any, spool: Path) -> Sheet:  # noqa: N803
        """The table behind X, checked as scikit-learn does where it is an array of numbers."""
        self._check_groups(X, groups)
        self._dropped: set[Any] = set()
        self._words: Mapping[int, tuple[str, ...]] = {}
        if isinstance(X, (str, Path)):
            sheet = read_sheet(X, groups=groups, spool=spool)
            self._remember(pd.DataFrame(columns=list(sheet.columns)), sheet)
            return sheet
        if isinstance(X, pd.DataFrame):
            return self._framed(X, groups)
        if isinstance(X, np.memmap):  # only its sides are looked at here: the map itself is read piece by piece
            validate_data(self, X, dtype=None, **{**self._demands(), "ensure_all_finite": False})
            return sheet_of(X, groups=groups, spool=spool)
        return sheet_of(validate_data(self, filled(X), dtype=KINDS, **self._demands()), groups=groups)

    def _framed(self, X: pd.DataFrame, groups: Any) -> Sheet:  # noqa: N803
        """The table of a frame, by the rules that files are read by."""
        if twice := [str(name) for name, count in Counter(X.columns).items() if count > 1]:
            raise BadInput(f"The names of the columns of X must all be different; given twice: {', '.join(twice)}.")
        sheet = sheet_of(X, groups=groups)
        validate_data(self, sheet.values, dtype=np.float32, **self._demands())
        self._remember(X, sheet)
        return sheet

    def _remember(self, frame: pd.DataFrame, sheet: Sheet) -> None:
        """Which columns of a table are channels, and what stands for the words in them."""
        kept = frame.iloc[:0, list(sheet.channels)]
        validate_data(self, kept, skip_check_array=True)
        self._dropped = set(frame.columns) - set(kept.columns)
        self._words = dict(sheet.categories)

    def _demands(self) -> dict[str, Any]:
        return {"ensure_all_finite": "allow-nan", "ensure_min_features": LEAST_CHANNELS, "ensure_min_samples": 10}

    def _check(self) -> None:
        """Refuse what cannot be used before anything is read."""
        for name, least in LEAST.items():
            value = getattr(self, name)
            optional = name not in ("neighbors", "n_draws")
            if not (value is None and optional) and not (isinstance(value, Integral) and int(value) >= least):
                raise must_be(name, f"a whole number of at least {least}", value)
        if not isinstance(self.hidden, Real) or not 0 < float(self.hidden) < 1:
            raise must_be("hidden", "a number above 0 and below 1", self.hidden)
        if isinstance(self.random_state, Integral) and int(self.random_state) < 0:
            raise must_be("random_state", "a whole number of at least 0, a RandomState or None", self.random_state)

    def _check_groups(self, X: Any, groups: Any) -> None:  # noqa: N803
        """A name is for columns that have names, and a file has its groups in a column or in another file."""
        named = isinstance(groups, (str, Path))
        single = groups is not None and (named or is_single(groups))
        if single and not isinstance(X, (str, Path, pd.DataFrame)):
            raise must_be("groups", "the group of each row, since the columns of an array have no names", groups)
        if isinstance(X, (str, Path)) and not named and groups is not None:
            allowed = "the name of a column or a file with a group a row, since X is a file"
            raise BadInput(f"groups must be {allowed}; got {type(groups).__name__}.")

    def _sigmas(self) -> tuple[float, ...] | None:
        """The sigmas that were given, None for those that suit the effort."""
        if isinstance(self.sigma, str) and self.sigma == "auto":
            return None
        try:
            given = () if self.sigma is None or isinstance(self.sigma, str) else np.atleast_1d(self.sigma).tolist()
            found = tuple(float(sigma) for sigma in given)
        except (TypeError, ValueError):
            found = ()
        if not found:
            raise must_be("sigma", "'auto', a number or a list of numbers", self.sigma)
        return found

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1000))

    def _given(self, seed: int, effort: str, channels: int) -> dict[str, Any]:
        """The settings of the study: those that were given, and for the rest what suits."""
        count = len(OwnData.scales[effort].get("seeds", OwnData.seeds)) if self.n_seeds is None else self.n_seeds
        wanted = {
            "sigmas": self._sigmas(),
            "halves": self.n_halves,
            "steps": self.steps,
            "batch": self.batch,
            "width": self.width,
            "layers": self.layers,
            "learning_rate": self.learning_rate,
            "hidden": self.hidden,
            "neighbors": self.neighbors,
            "draws": self.n_draws,
            "seeds": tuple(range(seed, seed + int(count))),
            "data_seed": seed,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        plain = {name: each.item() if isinstance(each, np.generic) else each for name, each in given.items()}
        return OwnData.sized(effort, channels, **plain)

    def _keep(self, study: OwnData, task: Table, out: Path) -> None:
        """What prediction needs: the members of the chosen sigma, their weights, and how values are standardized."""
        sigma = own_results.read(out).sigma
        run, every = Run(out), study.members()
        rows = run.members[(run.members["state"] == "done") & (run.members["data"] == PARTS[0])]
        numbers = [int(i) for i in rows.loc[rows["sigma"] == sigma, "member"]]
        weights = run.tensors("weights.safetensors")
        self._members = [every[i] for i in numbers]
        self._weights = torch.cat([weights[str(i)] for i in numbers]).numpy()
        self._columns, self._hidden = task.columns, study.hidden

    # ----------------------------------------------------------------------------------------------------- asking

    def transform(self, X: Any) -> npt.NDArray[np.float64]:  # noqa: N803
        """What every channel should be, given the others, (samples, n): each is hidden in turn, a share of them at a
        time, and predicted by the models of the chosen sigma, in its own unit; of a category, its likeliest value. X is
        whatever `fit` takes, and may be without the column of the groups."""
        check_is_fitted(self)
        raw, (task, stack) = self._values(X), self._model()
        n, guess = task.tokens, np.zeros((len(raw), task.tokens))
        order = np.random.default_rng(0).permutation(n)
        for hidden in np.array_split(order, min(n, int(np.ceil(1 / self._hidden)))):
            marks = torch.zeros(n, dtype=torch.bool)
            marks[torch.from_numpy(hidden)] = True
            for part in portions(stack, task, len(raw)):
                values, known = task.standard(raw[part.start : part.stop])
                shown = (known & ~marks).to(values.dtype)[..., None]
                inputs = torch.cat([values * shown, 1 - shown], -1)
                with torch.no_grad():
                    told = stack(inputs.expand(len(self._members), *inputs.shape)).mean(0)  # (b, n, w)
                guess[part.start : part.stop, hidden] = self._plain(told)[:, hidden]
        return guess

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """The share of the variance of hidden channels that the others tell, on these samples: 1 is all of it, 0 what
        guessing the means of the training samples gives. y is not used."""
        check_is_fitted(self)
        raw, (task, stack) = self._values(X), self._model()
        dice = torch.from_numpy(np.random.default_rng(0).integers(2**62, size=tuple(raw.shape)))
        share = torch.full((len(raw),), self._hidden, dtype=torch.float64)
        missed = spread = 0.0
        for part in portions(stack, task, len(raw)):
            at = slice(part.start, part.stop)
            inputs, targets = task.ask(raw[at], dice[at], share[at])
            with torch.no_grad():
                told = stack(inputs.expand(len(self._members), *inputs.shape)).mean(0)
            asked = targets[..., -1:]
            missed += float(((told - targets[..., :-1]).square() * task.used * asked).sum())
            spread += float((targets[..., :-1].square() * asked).sum())
        return 1 - missed / spread if spread > 0 else float("nan")

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """The names of the channels that `transform` predicts: those that vary."""
        check_is_fitted(self)
        return np.array(self.names_, dtype=object)

    def _values(self, X: Any) -> torch.Tensor:  # noqa: N803
        """Samples as they are, the channels that were learned, (samples, n)."""
        if isinstance(X, (str, Path)):
            X = read_cells(X)  # noqa: N806
        if isinstance(X, pd.DataFrame):
            wider = X.shape[1] > self.n_features_in_  # else columns without names would be taken for one another
            left = [name for name in X.columns if wider and name in self._dropped]
            X = X.drop(columns=left)  # noqa: N806
            validate_data(self, X, reset=False, skip_check_array=True)  # names come first, since words go by place
            X = coded(X, self._words)  # noqa: N806
        values = validate_data(self, filled(X), dtype=KINDS, reset=False, ensure_all_finite="allow-nan")
        stored = as_float32(values[:, self.channels_] - self._offsets)
        if np.isinf(stored).any():
            raise must_be("X", "finite numbers, none beyond 3.4e+38", float(np.nanmax(np.abs(values))))
        return torch.from_numpy(stored)

    def _model(self) -> tuple[Table, Stack]:
        """The chosen members, and a task that knows how values are standardized."""
        rows = np.zeros(1, dtype=np.int64)
        few = np.zeros((1, int(self._columns.kept.max()) + 1), dtype=np.float32)
        task = Table(few, self._columns, {"train": rows, "test": rows}, (self._hidden,))
        stack = stack_for(self._members, task)
        stack.flat.copy_(torch.from_numpy(self._weights))
        return task, stack

    def _plain(self, told: torch.Tensor) -> npt.NDArray[np.float64]:
        """Predictions (b, n, w) as values in the channels' own units, (b, n)."""
        scaled = told.double().numpy() * self._columns.scale + self._columns.shift
        codes = np.where(self._columns.used, scaled, -np.inf).argmax(axis=-1)
        return np.where(self._columns.levels > 0, codes, scaled[..., 0] + self._offsets)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = False
        return tags


def _is_fit(folder: Path) -> bool:
    """Whether a folder holds an earlier fit, finished or not."""
    return (folder / "config.json").is_file() and Run(folder).study == OwnData.name

"""LearnedPositions, a scikit-learn estimator that learns a map of the channels (columns) of a table.

>>> from placecode import LearnedPositions
>>> fitted = LearnedPositions().fit(X)  # X (samples, channels): an array, a DataFrame, a memmap or the path of a file
>>> fitted.verdict_, fitted.p_value_
>>> fitted.map_, fitted.modules_, fitted.neighbors_, fitted.confidence_["channels"]
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
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

from placecode.data.cells import as_float32, find_duplicates
from placecode.data.tables.arrays import fill_masked
from placecode.data.tables.files import Sheet, encode_categories, is_column_name, read_cells, read_sheet, sheet_of
from placecode.errors import BadInput, must_be
from placecode.execution.settings import ExecutionSettings
from placecode.experiments.channels.table import TableExperiment
from placecode.fit.fitting import experiment_of_sheet, fit, is_fit, trained_models
from placecode.models.encoder import Stack
from placecode.reports.pages import fit_text
from placecode.runs.read import Run
from placecode.settings import declarations
from placecode.tasks.table import DATA_SETS, TableTask
from placecode.training.trainer import portions, stack_for
from placecode.validation import whole_number

MIN_CHANNELS = 2
DTYPES = [np.float64, np.float32]
"""Accepted dtypes. Values stay float64 until the offset of each channel is subtracted, to preserve precision."""
SETTINGS = ("mask_ratio", "n_halves", "steps", "batch", "width", "layers", "learning_rate", "neighbors", "n_draws")
"""Parameters that are settings of `TableExperiment`, where their names have no "n_"."""
OPTIONAL = ("n_halves", "steps", "batch", "width", "layers", "learning_rate")
"""Parameters in `SETTINGS` that may be None, for a default that depends on the effort or the table."""


class LearnedPositions(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn a map of the channels of a table with small transformers.

    The models predict hidden channels from the others. Their learnable positional encodings (PEs), one vector per
    channel, come to reflect which channels belong together. Several PEs are trained: for a few initialization scales
    sigma, several seeds and both halves of the samples. Their agreement measures the confidence in the map.

    Parameters
    ----------
    sigma : "auto", float or list of float, default="auto"
        Initialization scales of the PE to choose from; "auto" is 0.01, 0.05, 0.2, and more with more effort. Of the
        scales within one standard error of the lowest validation error, the one whose PEs agree most is chosen.
    effort : {"auto", "quick", "thorough"}, default="auto"
        Size and number of the models, and length of training. "auto" is thorough on a GPU and quick on a CPU.
    mask_ratio : float, default=0.3
        Share of the channels that are hidden from the models, which predict them from the other channels.
    n_seeds, n_halves : int, optional
        Number of models per sigma that are trained on all training samples, and number of models per sigma that are
        trained on each half of them.
    steps, batch, width, layers, learning_rate : int or float, optional
        Settings of the models. The defaults depend on the effort and the number of channels.
    neighbors, n_draws : int, default=4 and 199
        Number of nearest channels that count as neighbours, and number of random shifts of the channels in the test
        against chance.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Device to train on.
    random_state : int, RandomState or None
        Seed of the split of the samples and of the models.
    folder : str or Path, optional
        Folder for the files of the fit; an earlier fit in it is overwritten. By default, no files are kept.

    Attributes
    ----------
    embedding_ : array of shape (n, d)
        PEs of the channels, rotated onto each other and averaged over seeds. The axis of largest variance is first.
    similarity_ : array of shape (n, n)
        Cosine similarity of the centred PEs (mean over channels subtracted), averaged over all models of `sigma_`.
    map_, map_3d_ : arrays of shape (n, 2) and (n, 3)
        Positions of the channels on maps with two and three axes. `map_3d_` is None with fewer than three channels.
    modules_, module_stability_ : array of shape (n,), dict
        Module (group of similar channels) of each channel, -1 if it has none. For each number of modules that was
        tried, how well modules agree between models; the number is chosen by this agreement.
    neighbors_ : array of shape (n, neighbors)
        Nearest channels of each channel, the nearest first.
    confidence_ : dict
        "channels" (n,): confidence in the position of each channel; "pairs" (n, n): confidence that two channels are
        neighbours. Both are from 0 to 1, or NaN if unknown.
    p_value_, verdict_, summary_ : float, str, list of str
        P-value of the test against chance (do the channels depend on each other?); "structure found" or "no structure
        found"; and all results in sentences.
    scores_, baselines_ : dict
        Errors on held-out samples: "heldout_mse" of the models, "linear_mse" of a linear prediction and "mean_mse" of
        predicting the means; and the scores of other methods, by name.
    sigma_, sigma_reason_, sigmas_ : float, str, list of dict
        The chosen sigma, the reason in a sentence, and the validation error and agreement of PEs at each sigma.
    channels_ : array of shape (n,)
        Indices of the columns of X that vary, not counting dropped columns. Constant columns are not used.

    Examples
    --------
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
        mask_ratio: float = 0.3,
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
        self.mask_ratio = mask_ratio
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

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:  # noqa: N803
        """Learn the map and return the estimator itself. y is ignored.

        Parameters
        ----------
        X : array, DataFrame, memmap or path, of shape (samples, channels)
            The table. Values may be missing (NaN or masked); columns of a DataFrame or file may be categorical. Files
            are read in chunks. A first column that counts the rows, such as "time", "id" or an index, is dropped.
        groups : array of shape (samples,), or name of a column, optional
            Group of each sample, such as its subject or day. Whole groups are held out.
        """
        settings = self._checked_settings()
        execution = ExecutionSettings(self.device)
        effort = TableExperiment.effort_on(execution.device, self.effort)
        with tempfile.TemporaryDirectory(prefix="placecode-") as temporary:
            out = Path(temporary) / "run" if self.folder is None else Path(self.folder)
            sheet = self._sheet(X, groups, spool=Path(temporary))  # data that do not fit into memory are written there
            settings |= self._sigmas() | self._seeds(effort)
            settings["file"] = str(X) if isinstance(X, (str, Path)) else sheet.source
            if groups is not None and (isinstance(groups, Path) or is_column_name(groups)):
                settings["groups"] = str(groups)
            experiment = experiment_of_sheet(sheet, effort, settings, MIN_CHANNELS)
            result = fit(experiment, out, effort=effort, execution=execution, force=is_fit(out))
            self._members, weights = trained_models(experiment, Run(out))[result.sigma]
        self.embedding_, self.similarity_ = result.embedding, result.ours.similarity
        self.map_, self.map_3d_ = result.ours.maps[2], result.ours.maps.get(3)
        self.modules_, self.module_stability_ = result.ours.labels, dict(result.stability)
        self.neighbors_ = result.neighbors
        self.confidence_ = {"channels": result.confidence, "pairs": result.pairs}
        self.p_value_, self.verdict_, self.summary_ = result.p_value, result.verdict, fit_text.sentences(result)
        self.sigma_, self.sigma_reason_, self.sigmas_ = result.sigma, result.why, list(result.sigmas)
        self.scores_ = {name: getattr(result, name) for name in ("heldout_mse", "linear_mse", "mean_mse")}
        self.baselines_ = {name: dict(method.scores) for name, method in result.others.items()}
        self._columns, self._hidden = experiment.tables[DATA_SETS[0]].columns, experiment.mask_ratio
        self.channels_, self.names_ = self._columns.indices, result.names
        self._weights = weights.numpy()
        self._offsets: npt.NDArray[np.float64] = sheet.offsets[self.channels_]
        return self

    def _sheet(self, X: Any, groups: Any, spool: Path) -> Sheet:  # noqa: N803
        """Read X as a table; data that do not fit into memory are written to the folder `spool`.

        Arrays are checked as in scikit-learn. A DataFrame is read in the same way as a file.
        """
        self._check_groups(X, groups)
        self._dropped: set[Any] = set()
        self._categories: Mapping[int, tuple[str, ...]] = {}
        if isinstance(X, (str, Path)):
            sheet = read_sheet(X, groups=groups, spool=spool)
            self._remember(pd.DataFrame(columns=list(sheet.columns)), sheet)
            return sheet
        requirements: dict[str, Any] = {"ensure_min_features": MIN_CHANNELS, "ensure_min_samples": 10}
        if isinstance(X, np.memmap):  # check its shape only, since its values are read in chunks
            validate_data(self, X, dtype=None, ensure_all_finite=False, **requirements)
            return sheet_of(X, groups=groups, spool=spool)
        requirements["ensure_all_finite"] = "allow-nan"
        if not isinstance(X, pd.DataFrame):
            return sheet_of(validate_data(self, fill_masked(X), dtype=DTYPES, **requirements), groups=groups)
        if repeated := [str(name) for name in find_duplicates(X.columns)]:
            raise BadInput(f"The names of the columns of X must all be different; given twice: {', '.join(repeated)}.")
        sheet = sheet_of(X, groups=groups)
        validate_data(self, sheet.values, dtype=np.float32, **requirements)
        self._remember(X, sheet)
        return sheet

    def _remember(self, frame: pd.DataFrame, sheet: Sheet) -> None:
        """Store which columns of a table are channels and which are dropped, and the codes of categorical values."""
        channels = frame.iloc[:0, list(sheet.channels)]
        validate_data(self, channels, skip_check_array=True)
        self._dropped = set(frame.columns) - set(channels.columns)
        self._categories = dict(sheet.categories)

    def _checked_settings(self) -> dict[str, Any]:
        """Return the settings of `TableExperiment` that are set by the parameters in `SETTINGS`, by name.

        Raise BadInput if one of them, `n_seeds` or `random_state` is invalid. This is called before data are read.
        """
        declared, settings = declarations(TableExperiment), {}
        for parameter in SETTINGS:
            name, value = parameter.removeprefix("n_"), getattr(self, parameter)
            if value is not None or parameter not in OPTIONAL:
                settings[name] = replace(declared[name], name=parameter).check(value)
        if self.n_seeds is not None:
            whole_number("n_seeds", self.n_seeds, least=1)
        if isinstance(self.random_state, Integral) and int(self.random_state) < 0:
            raise must_be("random_state", "a whole number of at least 0, a RandomState or None", self.random_state)
        return settings

    def _check_groups(self, X: Any, groups: Any) -> None:  # noqa: N803
        """Raise BadInput if `groups` does not go with X.

        A name of a column needs a file or a DataFrame, and a file needs the name of a column or of another file.
        """
        is_name = isinstance(groups, (str, Path))
        single = groups is not None and (is_name or is_column_name(groups))
        if single and not isinstance(X, (str, Path, pd.DataFrame)):
            raise must_be("groups", "the group of each row, since the columns of an array have no names", groups)
        if isinstance(X, (str, Path)) and not is_name and groups is not None:
            allowed = "the name of a column or a file with a group a row, since X is a file"
            raise BadInput(f"groups must be {allowed}; got {type(groups).__name__}.")

    def _sigmas(self) -> dict[str, Any]:
        """Return {"sigmas": values of the parameter `sigma`}, or an empty dict if it is "auto"."""
        if isinstance(self.sigma, str) and self.sigma == "auto":
            return {}
        try:
            values = () if self.sigma is None or isinstance(self.sigma, str) else np.atleast_1d(self.sigma).tolist()
            sigmas = tuple(float(sigma) for sigma in values)
        except (TypeError, ValueError):
            sigmas = ()
        if not sigmas:
            raise must_be("sigma", "'auto', a number or a list of numbers", self.sigma)
        return {"sigmas": replace(declarations(TableExperiment)["sigmas"], name="sigma").check(sigmas)}

    def _seeds(self, effort: str) -> dict[str, Any]:
        """Return the settings `seeds` and `data_seed` by name, as given by `random_state`, `n_seeds` and the effort."""
        is_seed = isinstance(self.random_state, (int, np.integer))
        seed = int(self.random_state if is_seed else check_random_state(self.random_state).randint(2**31 - 1000))
        default_seeds = TableExperiment.scales[effort].get("seeds", TableExperiment.seeds)
        count = len(default_seeds) if self.n_seeds is None else self.n_seeds
        return {"seeds": tuple(range(seed, seed + int(count))), "data_seed": seed}

    def transform(self, X: Any) -> npt.NDArray[np.float64]:  # noqa: N803
        """Predict every channel from other channels, with the models of the chosen sigma.

        Several channels are hidden at a time, about the share `mask_ratio`. X is as in `fit`, and may lack the column
        of groups. Returns the predictions (samples, n) in the units of the channels. For a categorical channel, the
        prediction is the code of the most probable value.
        """
        check_is_fitted(self)
        raw, (task, stack) = self._values(X), self._model()
        n, predictions = task.tokens, np.zeros((len(raw), task.tokens))
        order = np.random.default_rng(0).permutation(n)
        for hidden in np.array_split(order, min(n, int(np.ceil(1 / self._hidden)))):
            marks = torch.zeros(n, dtype=torch.bool)
            marks[torch.from_numpy(hidden)] = True
            for part in portions(stack, task, len(raw)):
                at = slice(part.start, part.stop)
                values, known = task.standardize(raw[at])
                visible = (known & ~marks).to(values.dtype)[..., None]
                outputs = _mean_output(stack, torch.cat([values * visible, 1 - visible], -1))
                predictions[at, hidden] = self._unstandardized(outputs)[:, hidden]
        return predictions

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the share of the variance of hidden channels that the other channels explain (R2).

        It is 1 for a perfect prediction, 0 for predicting the means of the training samples, and NaN if all hidden
        values equal these means. X is as in `transform`; y is ignored.
        """
        check_is_fitted(self)
        raw, (task, stack) = self._values(X), self._model()
        mask_scores = torch.from_numpy(np.random.default_rng(0).integers(2**62, size=tuple(raw.shape)))
        mask_ratio = torch.full((len(raw),), self._hidden, dtype=torch.float64)
        squared_error = variance = 0.0
        for part in portions(stack, task, len(raw)):
            at = slice(part.start, part.stop)
            inputs, targets = task.hide(raw[at], mask_scores[at], mask_ratio[at])
            true, scored = targets[..., :-1], targets[..., -1:]
            errors = (_mean_output(stack, inputs) - true).square() * task.used
            squared_error += float((errors * scored).sum())
            variance += float((true.square() * scored).sum())
        return 1 - squared_error / variance if variance > 0 else float("nan")

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the channels that `transform` predicts. Constant columns are not among them."""
        check_is_fitted(self)
        return np.array(self.names_, dtype=object)

    def _values(self, X: Any) -> torch.Tensor:  # noqa: N803
        """Read X, check it, and return the values of the channels used in `fit`, minus their offsets, (samples, n)."""
        if isinstance(X, (str, Path)):
            X = read_cells(X)  # noqa: N806
        if isinstance(X, pd.DataFrame):
            wider = X.shape[1] > self.n_features_in_  # otherwise columns without names could be confused
            extra = [name for name in X.columns if wider and name in self._dropped]
            X = X.drop(columns=extra)  # noqa: N806
            validate_data(self, X, reset=False, skip_check_array=True)  # names first: categories are coded by position
            X = encode_categories(X, self._categories)  # noqa: N806
        values = validate_data(self, fill_masked(X), dtype=DTYPES, reset=False, ensure_all_finite="allow-nan")
        stored = as_float32(values[:, self.channels_] - self._offsets)
        if np.isinf(stored).any():
            raise must_be("X", "finite numbers, none beyond 3.4e+38", float(np.nanmax(np.abs(values))))
        return torch.from_numpy(stored)

    def _model(self) -> tuple[TableTask, Stack]:
        """Return a task without data that standardizes the channels, and the models of the chosen sigma as a stack."""
        rows = np.zeros(1, dtype=np.int64)
        empty = np.zeros((1, int(self._columns.indices.max()) + 1), dtype=np.float32)
        task = TableTask(empty, self._columns, {"train": rows, "test": rows}, (self._hidden,))
        stack = stack_for(self._members, task)
        stack.flat.copy_(torch.from_numpy(self._weights))
        return task, stack

    def _unstandardized(self, outputs: torch.Tensor) -> npt.NDArray[np.float64]:
        """Convert outputs (b samples, n channels, w values) to units of the channels or codes of categories, (b, n)."""
        scaled = outputs.double().numpy() * self._columns.scale + self._columns.shift
        codes = np.where(self._columns.used, scaled, -np.inf).argmax(axis=-1)
        return np.where(self._columns.levels > 0, codes, scaled[..., 0] + self._offsets)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = False
        return tags


@torch.no_grad()
def _mean_output(stack: Stack, inputs: torch.Tensor) -> torch.Tensor:
    """Return the outputs of a stack, averaged over its models, (b samples, n channels, w values).

    `inputs`, (b, n, w + 1), has the w values of each channel and then a mark, which is 1 if it is hidden or missing.
    """
    outputs: torch.Tensor = stack(inputs.expand(len(stack.members), *inputs.shape))
    return outputs.mean(0)

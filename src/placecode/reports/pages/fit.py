"""The page of `placecode fit` on a user's table: figures, tables, sigma slider and map of channels (columns).

The sentences come from fit_text.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from placecode.analysis.agreement import MAX_DROP, MIN_AGREEMENT, similarity_order
from placecode.experiments.channels import fit_result
from placecode.experiments.channels.fit_result import FitResult
from placecode.reports import figures, wording
from placecode.reports.pages import fit_text
from placecode.reports.pages.base import Page, ReportFigure, report_figure, run_name
from placecode.reports.pages.fit_text import METHOD_NAMES, MIN_NEIGHBOR_CONFIDENCE, RANKED, by_name
from placecode.reports.pages.interactive import ChannelMap, Listing, SigmaSlider, Verdict

MAX_EDGES = 2_000
"""Largest number of lines between channels on a map."""
MORE_MODULES = 5
"""The table of modules (groups of channels) ends at the chosen number of modules plus this."""
COLUMNS = {
    "heldout_mse": "held-out error",
    "procrustes_r2": "Procrustes R2",
    "neighbor_agreement": "nearest is a true neighbour",
    "neighbor_agreement_p": "p of the neighbours",
    "ari": "ARI of modules",
    "ari_p": "p of the ARI",
}
"""Column names of the scores in the table of methods."""
IN_TITLES = {"heldout_mse": "error", "procrustes_r2": "R2", "neighbor_agreement": "neighbours", "ari": "ARI"}
"""Short names of the scores in the titles of panels."""


class FitPage(Page):
    """The page of `placecode fit` on a user's table."""

    measures = (("moved_relative", "start"), ("stability", "other seeds"), ("stability", "other data"))
    map_first = True

    @cached_property
    def fit(self) -> fit_result.FitResult:
        """The result of the fit, read from the folder of the run."""
        return fit_result.read(self.run.path)

    def figures(self) -> list[ReportFigure]:
        """Draw the map, the maps of other methods and, if several sigmas were tried, their errors."""
        fit, name_of_run = self.fit, run_name(self.run)
        ours = figures.channels_on_map(
            fit.ours.maps[2], fit.names, fit.ours.labels, fit.confidence, name_of_run, edges(fit)
        )
        methods = by_name(fit)
        titles = {
            name: ", ".join(
                f"{title} {value:{RANKED[score][1]}}"
                for score, title in IN_TITLES.items()
                if (value := method.scores.get(score)) is not None
            )
            for name, method in methods.items()
        }
        on_a_plane = fit.positions is not None and fit.positions.shape[1] == 2
        by_method = figures.maps_by_method(
            {name: method.maps[2] for name, method in methods.items()},
            {name: method.labels if fit.labels is None else fit.labels for name, method in methods.items()},
            name_of_run,
            fit.positions if on_a_plane else None,
            titles,
            "modules that the method found" if fit.labels is None else "known groups",
        )
        drawn = [
            report_figure("fit.map", ours),
            report_figure("fit.methods", by_method, coloured_by_position=on_a_plane),
        ]
        if len(fit.sigmas) > 1:
            drawn.append(
                report_figure("fit.sigma", figures.sigma_choice(fit.sigmas, fit.sigma, name_of_run), why=fit.why)
            )
        return drawn

    def sentences(self) -> list[str]:
        return fit_text.sentences(self.fit)

    def lead(self) -> list[str]:
        return fit_text.lead(self.fit)

    def verdicts(self) -> list[Verdict]:
        return [fit_text.verdict(self.fit)]

    def slider(self) -> SigmaSlider | None:
        slider = super().slider()
        if slider is None:
            return None
        first = next((i for i, position in enumerate(slider.positions) if position.sigma == self.fit.sigma), 0)
        return replace(slider, **sorted_channels(self.fit), first=first)

    def channel_map(self) -> ChannelMap:
        """Return the map: the position of every channel, the confidence in it, its module (group) and neighbours."""
        fit = self.fit
        confidence, pairs = fit.confidences()
        columns: dict[str, list[object]] = {"confidence": [float(value) for value in confidence]}
        if fit.labels is not None:
            columns["known group"] = ["" if i < 0 else fit.label_names[i] for i in fit.labels]
        if fit.positions is not None:
            axes = zip("xyz", fit.positions.T, strict=False)
            columns |= {f"known {axis}": list(map(float, values)) for axis, values in axes}
        lines = edges(fit)
        return ChannelMap(
            fit.names,
            fit.ours.maps[2],
            fit.ours.maps.get(3),
            fit.ours.labels if fit.module_count > 1 or not fit.on_map.all() else None,
            columns=columns,
            neighbors=[[(int(j), float(pairs[i, j])) for j in row] for i, row in enumerate(fit.neighbors)],
            edges=lines,
            note=wording.caption("fit.channels", edges=bool(lines), sure=MIN_NEIGHBOR_CONFIDENCE)[1],
        )

    def listings(self) -> list[Listing]:
        """Return three tables: the scores of every method, the sigmas that were tried, and how well each possible
        number of modules (groups of channels) is reproduced."""
        fit = self.fit
        methods = by_name(fit)
        scores = [name for name in COLUMNS if any(name in method.scores for method in methods.values())]
        rows = [
            [name, *(method.scores.get(score) for score in scores), int(method.labels.max()) + 1]
            for name, method in methods.items()
        ]
        rows.append(
            ["guessing the mean", *(fit.mean_mse if score == "heldout_mse" else None for score in scores), None]
        )
        left_out = {METHOD_NAMES[name]: why for name, why in fit.left_out.items()}
        sigma_rows = [[row[name] for name in ("sigma", "error", "standard_error", "stability")] for row in fit.sigmas]
        tables = [
            Listing(
                *wording.caption("fit.methods-table", left_out=left_out),
                ["method", *(COLUMNS[score] for score in scores), "modules"],
                rows,
            ),
            Listing(
                *wording.caption("fit.sigma-table", why=fit.why),
                ["sigma", "validation error", "standard error", "agreement between fits"],
                sigma_rows,
            ),
        ]
        agreement = [
            [count, value] for count, value in sorted(fit.stability.items()) if count <= fit.module_count + MORE_MODULES
        ]
        if agreement:
            text = wording.caption("fit.modules-table", nearly=MAX_DROP, sure=MIN_AGREEMENT)
            tables.append(Listing(*text, ["modules", "agreement"], agreement))
        return tables


def sorted_channels(fit: FitResult) -> dict[str, Any]:
    """Return the fields of the `SigmaSlider` that sort and colour the channels, and its caption.

    Channels are sorted by module. If the fits agree on no modules, similar channels are put next to each other.
    """
    has_modules = fit.module_count > 1
    _, note = wording.caption("fit.slider", modules=has_modules)
    if not has_modules:
        return {"groups": None, "group_names": [], "order": similarity_order(fit.ours.similarity), "note": note}
    names = [f"module {i + 1}" for i in range(fit.module_count)]
    return {"groups": fit.ours.labels, "group_names": names, "note": note}


def edges(fit: FitResult) -> list[tuple[int, int, float]]:
    """Return (channel, channel, confidence) for pairs of channels that are neighbours with a confidence of at least
    MIN_NEIGHBOR_CONFIDENCE, the most confident first; at most MAX_EDGES."""
    first, second = np.nonzero(np.triu(fit.pairs >= MIN_NEIGHBOR_CONFIDENCE, k=1))
    confidence = fit.pairs[first, second]
    order = np.argsort(-confidence, kind="stable")[:MAX_EDGES]
    return [(int(first[i]), int(second[i]), float(confidence[i])) for i in order]

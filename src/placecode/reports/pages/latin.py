"""The pages of lst-sigma and lst-encodings, the main experiments on Latin squares: their figures and sentences.

The sentences are in templates/lst-sigma.j2 and templates/lst-encodings.j2. They say whether models generalize, memorize
or have not fitted their training puzzles. 2d-fixed is the paper's reference PE, sinusoids of the true row and column.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from placecode.analysis import alignment, attention, geometry
from placecode.analysis.stats import interval
from placecode.data.puzzles import CLASSES
from placecode.encodings import sinusoid
from placecode.experiments import correlates
from placecode.experiments.claims import NotInRun
from placecode.experiments.latin.effects import AUTHORS_MEANS
from placecode.experiments.measures import reference_members
from placecode.experiments.reading import (
    accuracy,
    analysis_values,
    contrast_sigmas,
    final_accuracy,
    finished_members,
    is_swept,
    members_of,
    sweep_members,
)
from placecode.experiments.specs import with_encoding_names
from placecode.reports import figures, wording
from placecode.reports.pages.base import Page, ReportFigure, counts, report_figure, run_name
from placecode.runs.read import Run

MEASURES = (
    ("norm", ""),
    ("moved_relative", "start"),
    ("procrustes_raw", "2d-fixed"),
    ("procrustes", "2d-fixed"),
    ("rsa", "2d-fixed"),
    ("neighbor_agreement", "relation"),
    ("attention_cosine", "2d-fixed"),
)
"""The (analysis, target) pairs in the table of measures of both pages."""
PUBLISHED = {
    "2d-fixed": (0.977, 0.1),
    f"learned, {figures.SIGMA} 0.2": (0.956, 0.0),
    "relative, causal": (0.92, 0.0),
}
"""Published results by encoding: the paper's OOD accuracy, and the dropout rate with which it was reached."""
GEOMETRY = {
    "norm": "root mean square of the PE",
    "effective_dimension": "effective dimension",
    "moved_relative": "distance moved / size at the start",
}
"""Measures of the PE drawn before and after training, with their axis labels."""
USUAL_SIGMAS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Sigmas for which the figure of noise draws curves, if the run has at least three of them; otherwise all."""
FITTED = 0.95
"""A model has fitted its training puzzles if its accuracy on them is at least this."""
GENERALIZES, MEMORIZES = 0.85, 0.5
"""A fitted model generalizes if its OOD accuracy is at least the first, and memorizes if it is at most the second."""
OUTCOMES = ("generalizes", "partly", "memorizes", "not fitted", "diverged")
"""What a model has learned, from best to worst."""


class SigmaPage(Page):
    """The page of lst-sigma."""

    measures = MEASURES

    def figures(self) -> list[ReportFigure]:
        """Return all figures, or only accuracy and learning curves if no member belongs to the sweep over sigma."""
        run = self.run
        name, chance, members = run_name(run), chance_of(run), members_of(run)
        labels = members["label"].where(~is_swept(run), members["encoding"])
        members = members.assign(encoding=labels, options="{}").drop(columns=["dropout_at_evaluation"])
        drawn = [
            report_figure("latin.accuracy", figures.accuracy_by_sigma(members, run.metrics, name, chance)),
            report_figure("latin.curves", figures.learning_curves(members, run.metrics, name, chance)),
        ]
        if not is_swept(run).any():  # a part of the experiment with references only
            return drawn
        drawn += _published(run)
        if len(sweep_members(run)["sigma"].unique()) > 2:
            drawn += _relations(run)
        return [*drawn, *_pictures(run), *_behaviour(run)]

    def sentences(self) -> list[str]:
        """Return sentences on accuracy and outcome at the small and the large sigma, and on their difference."""
        run = self.run
        settings: list[dict[str, Any]] = []
        small = large = difference = None
        if is_swept(run).any():
            table = final_accuracy(run, sweep_members(run))
            small, large = contrast_sigmas(run)
            for sigma in dict.fromkeys((small, large)):
                means = table[table["sigma"] == sigma].groupby("split")["value"].mean()
                seeds = int(((table["sigma"] == sigma) & (table["split"] == "train")).sum())
                learned = outcome(means["train"], means["ood"]) if seeds else "diverged"
                settings.append({"sigma": sigma, "outcome": learned, "seeds": seeds, **means})
            by_seed = table[table["split"] == "ood"].pivot(index="seed", columns="sigma", values="value")
            if small != large and {small, large} <= set(by_seed.columns):
                paired = interval(by_seed[small] - by_seed[large])
                difference = paired if np.isfinite(paired.mean) else None  # NaN if no seed finished at both
        return wording.sentences(
            "lst-sigma", settings=settings, small=small, large=large, difference=difference, **counts(run)
        )


class EncodingsPage(Page):
    """The page of lst-encodings."""

    measures = MEASURES

    def figures(self) -> list[ReportFigure]:
        run = self.run
        name, chance, members = run_name(run), chance_of(run), with_encoding_names(finished_members(run))
        final = final_accuracy(run, members)
        published = {label: value for label, value in PUBLISHED.items() if label in set(members["name"])}
        least = float(final["dropout"].min())
        with_least = final[final["dropout"] == least]
        return [
            report_figure("encodings.dropout", figures.effect_of_dropout(final, name, published, chance)),
            report_figure("encodings.encodings", figures.accuracy_by_name(with_least, name, chance), dropout=least),
            report_figure("encodings.curves", figures.curves_by_name(ood_curves(run, members), name, chance)),
        ]

    def sentences(self) -> list[str]:
        """Return a sentence for each dropout rate and outcome, with its encodings, the most accurate first."""
        run = self.run
        members = with_encoding_names(members_of(run))
        table = final_accuracy(run, members[members["state"] == "done"])
        means = table.groupby(["dropout", "name", "split"])["value"].mean()
        seeds = table[table["split"] == "ood"].groupby(["dropout", "name"]).size()
        groups = []
        for rate in sorted(members["dropout"].unique()):
            by_outcome: dict[str, list[tuple[str, float | None]]] = {learned: [] for learned in OUTCOMES}
            for name in dict.fromkeys(members.loc[members["dropout"] == rate, "name"]):
                if (rate, name) in seeds:
                    ood = float(means[rate, name, "ood"])
                    by_outcome[outcome(means[rate, name, "train"], ood)].append((name, ood))
                else:
                    by_outcome["diverged"].append((name, None))
            for learned, encodings in by_outcome.items():
                if encodings:
                    ordered = sorted(encodings, key=lambda pair: (-(pair[1] or 0.0), pair[0]))
                    groups.append({"dropout": rate, "outcome": learned, "encodings": ordered})
        fewest, most = (int(seeds.min()), int(seeds.max())) if len(seeds) else (0, 0)
        return wording.sentences("lst-encodings", groups=groups, fewest_seeds=fewest, most_seeds=most, **counts(run))


def outcome(train: float, ood: float) -> str:
    """Return the outcome (one of OUTCOMES) of a model with these accuracies on training and OOD puzzles."""
    if train < FITTED:
        return "not fitted"
    return "generalizes" if ood >= GENERALIZES else "memorizes" if ood <= MEMORIZES else "partly"


def chance_of(run: Run) -> float:
    """Return the accuracy of guessing."""
    return 1 / float(run.config["shape"]["outputs"])


def ood_curves(run: Run, members: pd.DataFrame) -> pd.DataFrame:
    """Add the OOD accuracy at every step to a table of members: a row for each member and `step`, with its `value`."""
    rows = run.metrics[(run.metrics["metric"] == "accuracy") & (run.metrics["condition"] == "all")]
    values: pd.DataFrame = rows.loc[rows["split"] == "ood", ["member", "step", "value"]]
    return values.merge(members.drop(columns="value", errors="ignore"), on="member")


def _published(run: Run) -> list[ReportFigure]:
    """Draw our accuracies beside those of Ito et al. if the run has 3 or more of their sigmas and their protocol (the
    published puzzles, a learned PE, and the scale "paper")."""
    fields, rows = run.config["fields"], sweep_members(run)
    their_protocol = fields["puzzles"] is not None and fields["learn"] and run.config["scale"] == "paper"
    if not their_protocol or len(set(rows["sigma"]) & set(AUTHORS_MEANS)) < 3:
        return []
    table = rows.assign(value=rows["member"].map(accuracy(run)))
    return [
        report_figure("latin.published", figures.beside_published(table, AUTHORS_MEANS, run_name(run), chance_of(run)))
    ]


def _relations(run: Run) -> list[ReportFigure]:
    """Draw how measures of the PE and of attention correlate with accuracy, across sigmas and at a fixed sigma. Return
    only the figures for which the run has the values."""
    table = correlates.measure_table(run)
    if table is None:
        return []
    drawn = [
        report_figure(
            "latin.relations", figures.relation_panels(table, run_name(run), correlates.correlation_notes(run))
        )
    ]
    if (correlations := correlates.correlations(run)) is not None:
        drawn.append(report_figure("latin.fixed-sigma", figures.forest(correlations, run_name(run))))
    return drawn


def _example(run: Run, sigma: float) -> tuple[int, str]:
    """Return the number of the first finished member with this sigma (or the first, if all diverged), and a title."""
    rows = run.members[is_swept(run) & (run.members["sigma"] == sigma)]
    finished = rows[rows["state"] == "done"]
    title = f"{figures.SIGMA} = {sigma:g}" + ("" if len(finished) else ", diverged")
    return int((finished if len(finished) else rows)["member"].iloc[0]), title


def _pictures(run: Run) -> list[ReportFigure]:
    """Draw the PEs and attention of example members. Return no figures if the run did not store its arrays."""
    positions = np.array(run.config["shape"]["positions"])
    names = [f"r{int(r) + 1}c{int(c) + 1}" for r, c in positions]
    rule = int(positions.max()) + 1
    examples = [_example(run, sigma) for sigma in contrast_sigmas(run)]
    first = examples[0][0]
    drawn = []
    if run.has_array(f"pe_end/{first}"):  # not for rotary and others without a vector per cell
        titles = [title for _, title in examples]
        pes = [[run.array(f"pe_{when}/{number}") for when in ("start", "end")] for number, _ in examples]
        truth = alignment.token_similarity(sinusoid(positions, int(run.members["width"].iloc[0])))
        small, large = ((alignment.token_similarity(start), alignment.token_similarity(end)) for start, end in pes)
        labels = (titles[0], titles[1], "true arrangement")
        figure = figures.similarity_maps(truth, small, large, names, run_name(run), labels, rule=rule)
        drawn.append(report_figure("latin.similarity", figure))
        drawn.append(_token_maps(run, pes, titles, positions, names))
        drawn += _geometry(run)
    if run.has_array(f"attention_end/{first}"):
        drawn.append(_attention(run, examples, positions, rule))
    return drawn


def _token_maps(
    run: Run, pes: Sequence[Sequence[np.ndarray]], titles: Sequence[str], positions: np.ndarray, names: Sequence[str]
) -> ReportFigure:
    """Draw maps of the cells from the distances between their PEs: before training, after it, and for 2d-fixed.

    `pes` has the PEs (start, end) of one member for each of the `titles`. `positions` (n, 2) are the rows and columns.
    """
    grid = np.stack([positions[:, 1], -positions[:, 0]], axis=1)  # columns to the right, rows down
    panels = []
    for title, start_and_end in zip(titles, pes, strict=True):
        places = grid
        for when, pe in zip(("before", "after"), start_and_end, strict=True):
            plane = geometry.mds(pe)
            places = geometry.align_map(plane.places, places)
            panels.append((f"{title}, {when}", places, float(plane.stress)))
    true = geometry.mds(sinusoid(positions, pes[0][1].shape[-1]))
    panels.append(("true arrangement", geometry.align_map(true.places, grid), float(true.stress)))
    gaps = np.abs(positions[:, None] - positions[None]).sum(-1)
    edges = [(int(a), int(b)) for a, b in np.argwhere(gaps == 1) if a < b]
    return report_figure("latin.token-maps", figures.token_maps(panels, edges, names, run_name(run)))


def _geometry(run: Run) -> list[ReportFigure]:
    """Draw size, effective dimension and movement of the PEs by sigma, if the run measured any of them."""
    parts = []
    rows = sweep_members(run)[["member", "sigma", "seed"]]
    for analysis, moment in product(GEOMETRY, ("start", "end")):
        with contextlib.suppress(NotInRun):
            values = analysis_values(run, analysis, "start" if analysis == "moved_relative" else "", moment)
            parts.append(rows.assign(measure=analysis, moment=moment, value=rows["member"].map(values)))
    if not parts:
        return []
    figure = figures.before_and_after(pd.concat(parts, ignore_index=True), run_name(run), GEOMETRY)
    return [report_figure("latin.geometry", figure)]


def _attention(run: Run, examples: Sequence[tuple[int, str]], positions: np.ndarray, rule: int) -> ReportFigure:
    """Draw attention maps of some members, of the reference members, and the ideal map: even attention within row and
    column. `examples` has (number, title) of each member. A thin line is drawn after every `rule` cells."""
    columns = [(title, run.array(f"attention_end/{number}").mean(1)) for number, title in examples]
    for name, numbers in reference_members(members_of(run)).items():
        maps = [
            run.array(key).mean(1) for key in (f"attention_end/{number}" for number in numbers) if run.has_array(key)
        ]
        if maps:
            columns.append((name if len(maps) > 1 else f"{name}, one seed", np.mean(maps, axis=0)))
    ideal = attention.ideal_map(positions)
    columns.append(("same row or column", np.broadcast_to(ideal, (len(columns[0][1]), *ideal.shape))))
    return report_figure("latin.attention", figures.attention_maps(columns, run_name(run), rule))


def _behaviour(run: Run) -> list[ReportFigure]:
    """Draw accuracy under noise, by class of puzzle and by cell, as far as the run measured them."""
    levels = [0.0, *run.config["fields"].get("noise", [])]
    drawn = []
    rows = sweep_members(run)[["member", "sigma", "seed"]]
    if len(levels) > 1:
        usual = rows[rows["sigma"].isin(USUAL_SIGMAS)]
        members = usual if usual["sigma"].nunique() > 2 else rows
        parts = []
        for split, level in product(("train", "ood"), levels):
            values = members["member"].map(analysis_values(run, "noise_accuracy", f"{split} {level:g}"))
            parts.append(members.assign(split=split, level=level, value=values))
        table = pd.concat(parts, ignore_index=True)
        drawn.append(report_figure("latin.noise", figures.noise_curves(table, run_name(run), chance_of(run))))
    try:
        table = pd.concat([_condition(run, rows, name) for name in CLASSES], ignore_index=True)
    except (NotInRun, KeyError):
        return drawn
    by_class = figures.conditions_by_sigma(table, run_name(run), chance_of(run))
    return [*drawn, report_figure("latin.classes", by_class), _errors(run)]


def _condition(run: Run, rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the table of members `rows` with the final OOD accuracy and confidence on the class of puzzles `name`."""
    final = run.metrics[(run.metrics["step"] == run.metrics["step"].max()) & (run.metrics["split"] == "ood")]
    final = final[(final["metric"] == "accuracy") & (final["condition"] == name)].set_index("member")["value"]
    confidence = rows["member"].map(analysis_values(run, "confidence", name))
    return rows.assign(condition=name, accuracy=rows["member"].map(final), confidence=confidence)


def _errors(run: Run) -> ReportFigure:
    """Draw the error rate of each cell at the small and the large sigma."""
    positions = np.array(run.config["shape"]["positions"]).astype(int)
    members = sweep_members(run)
    panels = []
    for sigma in dict.fromkeys(contrast_sigmas(run)):
        numbers = members.loc[members["sigma"] == sigma, "member"]
        grid = np.full(positions.max(0) + 1, np.nan)
        for row, column in positions:
            values = analysis_values(run, "error_rate", f"r{row + 1}c{column + 1}")
            grid[row, column] = values.reindex(numbers).mean()
        panels.append((f"{figures.SIGMA} = {sigma:g}", grid))
    return report_figure("latin.errors", figures.error_maps(panels, run_name(run)))

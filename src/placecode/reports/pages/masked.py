"""The page of experiments with masked prediction, which predict hidden channels from the others: mainly its figures.

The sentences come from masked_text.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import ClassVar

import numpy as np
import pandas as pd

from placecode.analysis import alignment, partitions
from placecode.experiments.measures import MeasureKey
from placecode.experiments.reading import chance_levels
from placecode.experiments.specs import format_setting
from placecode.models.member import NON_SETTING_COLUMNS
from placecode.reports import figures
from placecode.reports.figures.channels import share_title
from placecode.reports.pages import masked_text
from placecode.reports.pages.base import MAX_LEAD_SENTENCES, Page, ReportFigure, report_figure, run_name
from placecode.reports.pages.interactive import Verdict, stored_members
from placecode.runs.read import Run

MEASURES: dict[MeasureKey, str] = {
    ("neighbor_agreement", "labels"): "nearest channel in same group",
    ("mirror_agreement", "partner"): "nearest region is the mirror",
    ("neighbor_agreement", "positions"): "nearest channel is next to it in space",
    ("procrustes_r2", "positions"): "fit of the map to the true places (Procrustes R²)",
    ("modularity", "labels"): "signed modularity Q",
    ("ari", "labels"): "adjusted Rand index",
    ("modularity", "best"): "Q of the best partition",
    ("fc_correlation", "fc"): "correlation with connectivity",
}
"""Axis labels of measures of structure in a PE, by (analysis, target). Figures use the first ones that a run has."""
MAX_MEASURES = 3
"""Largest number of measures drawn side by side."""


class MaskedPage(Page):
    """The page of experiments with masked prediction of channels."""

    measures: ClassVar[Sequence[tuple[str, str]]] = (
        ("neighbor_agreement", "labels"),
        ("modularity", "labels"),
        ("ari", "labels"),
        ("fc_correlation", "fc"),
        ("moved_relative", "start"),
        ("stability", "other seeds"),
    )

    @cached_property
    def sections(self) -> dict[str, list[str]]:
        """The sentences of templates/masked.j2, by the name of their section."""
        return masked_text.sections(self.run)

    def figures(self) -> list[ReportFigure]:
        """Return the figures for what the run varies: sigma alone, the encoding, or other settings too."""
        run = self.run
        data = run_tables(run)
        if data.members["setting"].any():
            return _settings(run, data)
        encodings = data.members[["encoding", "options"]].drop_duplicates()
        if len(encodings) > 1 or data.members["sigma"].isna().all():
            return _encodings(run, data)
        return [*_sigmas(run, data), *_similarities(run)]

    def sentences(self) -> list[str]:
        order = ("in_settings", "linear", "pairwise", "shared_worlds", "lost")
        return [sentence for name in order for sentence in self.sections[name]]

    def lead(self) -> list[str]:
        """Return all sentences if there are at most MAX_LEAD_SENTENCES, else those on the lowest and highest values."""
        sentences, sections = self.sentences(), self.sections
        if len(sentences) <= MAX_LEAD_SENTENCES:
            return sentences
        pairwise = sections["pairwise"] if len(sections["pairwise"]) == 1 else []
        return [*sections["short"], *pairwise, *sections["lost"]][:MAX_LEAD_SENTENCES]

    def verdicts(self) -> list[Verdict]:
        return masked_text.verdicts(self.run)


@dataclass(frozen=True)
class RunTables:
    """The tables of a run from which figures are drawn, and the name of the run for the bottom of a figure."""

    members: pd.DataFrame
    metrics: pd.DataFrame
    analysis: pd.DataFrame
    name: str


def run_tables(run: Run) -> RunTables:
    """Return the tables of a run (members, metrics and analysis) from which its figures are drawn.

    If several seeds share a world (one split of the people into training and test), their values are averaged. Each
    world then has one row per setting, the column `seed` is the number of the world, and intervals in figures are over
    worlds. Seeds that diverged are left out, unless all seeds of the world did: then the world counts as diverged.
    """
    members, worlds = masked_text.with_settings(run), run.config["shape"]["worlds"]
    if not 1 < worlds < members["seed"].nunique():
        return RunTables(members, run.metrics, run.analysis, run_name(run))
    fields = [name for name in members.columns if name not in NON_SETTING_COLUMNS]
    done = members["state"] == "done"
    groups = members.assign(world=members["seed"] % worlds, done=done).groupby([*fields, "world"], dropna=False)
    first, any_done = groups["member"].transform("min"), groups["done"].transform("any")
    first_of_world = dict(zip(members["member"], first, strict=True))
    left_out = set(members.loc[~done & any_done, "member"])

    def averaged(table: pd.DataFrame) -> pd.DataFrame:
        """Return the table with one member for each setting and world, whose values are means over the seeds."""
        rows = table[~table["member"].isin(left_out)]
        rows = rows.assign(member=rows["member"].map(first_of_world))
        keys = [name for name in table.columns if name != "value"]
        return rows.groupby(keys, sort=False)["value"].mean().reset_index()

    by_world = members.assign(seed=members["seed"] % worlds, state=np.where(any_done, "done", "diverged"))
    name = f"{run_name(run)}; a seed here is a world, its seeds averaged"
    return RunTables(by_world[by_world["member"] == first], averaged(run.metrics), averaged(run.analysis), name)


def measures_in(run: Run) -> list[MeasureKey]:
    """Return at most MAX_MEASURES measures of structure that the run has, in the order of MEASURES."""
    measured = set(zip(run.analysis["analysis"], run.analysis["target"], strict=True))
    return [measure for measure in MEASURES if measure in measured][:MAX_MEASURES]


def _sigmas(run: Run, data: RunTables) -> list[ReportFigure]:
    """Draw structure and held-out error against sigma, and learning curves."""
    members, name, measures = data.members, data.name, measures_in(run)
    drawn: list[ReportFigure] = []
    if measures:
        figure = figures.structure_by_sigma(
            members,
            data.analysis,
            run.baselines,
            name,
            measures,
            chance=chance_levels(run.config["task"]),
            labels=MEASURES,
        )
        drawn.append(report_figure("masked.structure", figure))
    best = run.config["task"].get("best_mse")
    error = figures.error_by_sigma(members, data.metrics, run.baselines, name, best=best)
    curves = figures.error_curves(members, data.metrics, name)
    return [*drawn, report_figure("masked.error", error), report_figure("masked.curves", curves)]


def _similarities(run: Run) -> list[ReportFigure]:
    """Draw the similarity matrices of the PEs of one seed at several sigmas, and the regions on a brain.

    Channels are sorted by group, and the correlation matrix of the channels is shown beside the PEs if it was stored.
    Return no figures if no PE was stored.
    """
    rows = run.members[(run.members["state"] == "done") & run.members["sigma"].notna()]
    rows = rows[rows["seed"] == rows["seed"].min()].sort_values("sigma")
    rows = stored_members(run, rows)
    if rows.empty:
        return []
    seed = int(rows["seed"].iloc[0])
    fc = f"fc/{seed % run.config['shape']['worlds']}"
    correlations = run.array(fc).astype(np.float64) if run.has_array(fc) else None
    examples = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, 8 if correlations is None else 7).round().astype(int))]
    maps = {
        f"{figures.SIGMA} = {sigma:g}": alignment.token_similarity(run.array(f"pe_end/{number}").astype(np.float64))
        for number, sigma in zip(examples["member"], examples["sigma"], strict=True)
    }
    labels = run.config["task"].get("labels")
    groups = partitions.best_partition(next(iter(maps.values()))) if labels is None else np.array(labels)
    figure = figures.similarity_by_sigma(
        maps, groups, run_name(run), correlations, "correlation of channels", note=f"seed {seed}"
    )
    known_groups, correlation = labels is not None, correlations is not None
    first_and_last = dict.fromkeys((next(iter(maps)), next(reversed(maps))))
    return [
        report_figure("masked.similarity", figure, known_groups=known_groups, correlation=correlation),
        *_on_brain(run, {name: maps[name] for name in first_and_last}, seed),
    ]


def _on_brain(run: Run, maps: Mapping[str, np.ndarray], seed: int) -> list[ReportFigure]:
    """Draw the regions at their positions in a brain, coloured by the groups that their PEs form.

    `maps` are similarity matrices by title. Return no figure if positions or mirror regions are unknown, or nilearn is
    not installed.
    """
    places, partner = run.config["shape"]["positions"], run.config["task"].get("partner")
    if places is None or partner is None or find_spec("nilearn") is None:
        return []
    nearest = {name: (similarity - 3 * np.eye(len(similarity))).argmax(axis=1) for name, similarity in maps.items()}
    figure = figures.regions_on_brain(
        {name: partitions.best_partition(similarity) for name, similarity in maps.items()},
        np.array(places),
        run_name(run),
        nearest,
        np.array(partner),
        note=f"groups: the best partition of the PE of seed {seed} by modularity",
    )
    return [report_figure("masked.brain", figure)]


def _encodings(run: Run, data: RunTables) -> list[ReportFigure]:
    """Draw the held-out error and a measure of structure of each encoding."""
    figure = figures.measure_by_name(
        data.members,
        data.analysis,
        data.metrics,
        data.name,
        measures_in(run)[:1],
        run.baselines,
        chance_levels(run.config["task"]),
        MEASURES,
    )
    return [report_figure("masked.encodings", figure)]


def _settings(run: Run, data: RunTables) -> list[ReportFigure]:
    """Draw heat maps over two settings: one of the held-out error, one of the first measure of structure in the PEs.

    Columns are sigmas, and rows are the other swept settings. If sigma is not swept, columns are the values of the last
    swept setting.
    """
    members = data.members
    first = members["parts"].iloc[0]
    # the columns `down` and `across` are the row and the column of a member in the maps
    if members["sigma"].nunique() > 1 or len(first) < 2 or not first[-1][0]:
        members, across = members.assign(down=members["setting"], across=members["sigma"]), figures.SIGMA
    else:
        down = [", ".join(format_setting(part) for part in parts[:-1]) for parts in members["parts"]]
        members, across = members.assign(down=down, across=members["parts"].str[-1].str[-1]), first[-1][0]
    labels = {"across": across, "down": "", "condition": ""}
    last = data.metrics[(data.metrics["step"] == data.metrics["step"].max()) & (data.metrics["split"] == "test")]
    errors = _without_diverged(last[["member", "condition", "value"]].merge(members, on="member"))
    titles = {name: f"{share_title(name, members)[0]} in test" for name in errors["condition"].unique()}
    errors = errors.assign(condition=errors["condition"].map(titles))
    figure = figures.heatmap_by_settings(errors, data.name, "down", "across", "held-out error", labels, "condition")
    drawn = [report_figure("masked.errors", figure)]
    last = data.analysis[
        (data.analysis["step"] == data.analysis["step"].max()) & (data.analysis["block"] == alignment.ALL_BLOCKS)
    ]
    for measure in measures_in(run)[:1]:
        rows = last[(last["analysis"] == measure[0]) & (last["target"] == measure[1])]
        table = _without_diverged(rows[["member", "value"]].merge(members, on="member"))
        figure = figures.heatmap_by_settings(table, data.name, "down", "across", MEASURES[measure], labels)
        drawn.append(report_figure("masked.structure-by-setting", figure, name="structure", measure=MEASURES[measure]))
    return drawn


def _without_diverged(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with NaN as the values of diverged members, so that heat maps show the gaps."""
    return table.assign(value=table["value"].where(table["state"] == "done"))

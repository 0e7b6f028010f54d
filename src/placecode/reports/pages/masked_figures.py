"""Which figures a run of masked prediction shows, and what to look for in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pandas as pd

from placecode.analysis import modules, partitions
from placecode.experiments.reading import chance_in, swept_fields
from placecode.experiments.specs import differing, worded
from placecode.models.member import AUXILIARY
from placecode.reports import figures
from placecode.reports.figures.channels import share_title
from placecode.reports.pages.base import Shown
from placecode.reports.pages.latin_figures import run_name
from placecode.runs.read import Run

Measure = tuple[str, str]
SHOWN: dict[Measure, str] = {
    ("neighbor_agreement", "labels"): "nearest channel in same group",
    ("mirror_agreement", "partner"): "nearest region is the mirror",
    ("neighbor_agreement", "positions"): "nearest channel is next to it in space",
    ("procrustes_r2", "positions"): "fit of the map to the true places (Procrustes R²)",
    ("modularity", "labels"): "signed modularity Q",
    ("ari", "labels"): "adjusted Rand index",
    ("modularity", "best"): "Q of the best partition",
    ("fc_correlation", "fc"): "correlation with connectivity",
}
MOST = 3
"""Measures side by side."""


def of_run(run: Run) -> list[Shown]:
    """By what the run varies: sigma alone, the encoding, or two settings at once."""
    seen = tables(run)
    if seen.members["setting"].any():
        return _settings(run, seen)
    kinds = seen.members[["encoding", "options"]].drop_duplicates()
    if len(kinds) > 1 or seen.members["sigma"].isna().all():
        return _encodings(run, seen)
    return [*_sigmas(run, seen), *_similarities(run)]


@dataclass(frozen=True)
class Tables:
    """What is drawn of a run: members, their settings in words, what was measured of them, and what it is called."""

    members: pd.DataFrame
    metrics: pd.DataFrame
    analysis: pd.DataFrame
    name: str


def tables(run: Run) -> Tables:
    """The tables of a run; where seeds share worlds (splits of a few people), with worlds in the place of seeds.

    Seeds of a world are then averaged, so that an interval is one over worlds. One that diverged is left out of its
    world; a world all of whose seeds did counts as diverged.
    """
    members, worlds = differing(run.members, swept_fields(run)), run.config["shape"]["worlds"]
    if not 1 < worlds < members["seed"].nunique():
        return Tables(members, run.metrics, run.analysis, run_name(run))
    kinds = [name for name in members.columns if name not in AUXILIARY]
    done = members["state"] == "done"
    groups = members.assign(world=members["seed"] % worlds, done=done).groupby([*kinds, "world"], dropna=False)
    first, any_done = groups["member"].transform("min"), groups["done"].transform("any")
    place = dict(zip(members["member"], first, strict=True))
    gone = set(members.loc[~done & any_done, "member"])

    def averaged(table: pd.DataFrame) -> pd.DataFrame:
        kept = table[~table["member"].isin(gone)]
        by = [name for name in table.columns if name != "value"]
        means = kept.assign(member=kept["member"].map(place)).groupby(by, sort=False)["value"].mean()
        return means.reset_index()

    own = members.assign(seed=members["seed"] % worlds, state=np.where(any_done, "done", "diverged"))
    own = own[own["member"] == first]
    told = f"{run_name(run)}; a seed here is a world, its seeds averaged"
    return Tables(own, averaged(run.metrics), averaged(run.analysis), told)


def measures_in(run: Run) -> list[Measure]:
    """The first measures of structure that the run has."""
    known = set(zip(run.analysis["analysis"], run.analysis["target"], strict=True))
    return [measure for measure in SHOWN if measure in known][:MOST]


def chance_of(run: Run) -> dict[Measure, float]:
    """What chance gives, where that is a number."""
    return chance_in(run.config["task"])


def _sigmas(run: Run, seen: Tables) -> list[Shown]:
    members, name, wanted = seen.members, seen.name, measures_in(run)
    best = run.config["task"].get("best_mse")
    shown = [
        Shown(
            "structure",
            "Structure of the PE against sigma",
            "Do channels that belong together lie together, and did training bring them there? Hollow: before "
            "training. Lines: what pairwise measures of the same data find without any model.",
            figures.structure_by_sigma(
                members, seen.analysis, run.baselines, name, wanted, chance=chance_of(run), labels=SHOWN
            ),
        )
    ]
    shown += [
        Shown(
            "error",
            "Error against sigma",
            "Held-out error at the share of hidden channels that members were trained with, and at others. Worlds "
            "differ, which widens the bars: a seed has the same world at every sigma. Lines: predictors that know "
            "nothing of transformers; the linear one is the best of its kind.",
            figures.error_by_sigma(members, seen.metrics, run.baselines, name, best=best),
        ),
        Shown(
            "curves",
            "Learning curves",
            "A curve that still falls at the end has not settled.",
            figures.error_curves(members, seen.metrics, name),
        ),
    ]
    return shown if wanted else shown[1:]


def _similarities(run: Run) -> list[Shown]:
    """PEs of one seed at several sigmas, channels sorted by group, beside the correlation of the channels; and where
    the channels are regions of a brain, on a brain."""
    rows = run.members[(run.members["state"] == "done") & run.members["sigma"].notna()]
    rows = rows[rows["seed"] == rows["seed"].min()].sort_values("sigma")
    rows = rows[[run.has_array(f"pe_end/{number}") for number in rows["member"]]]
    if rows.empty:
        return []
    seed = int(rows["seed"].iloc[0])
    fc = f"fc/{seed % run.config['shape']['worlds']}"
    beside = run.array(fc).astype(np.float64) if run.has_array(fc) else None
    kept = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, 8 if beside is None else 7).round().astype(int))]
    maps = {
        f"{figures.SIGMA} = {sigma:g}": modules.similarities(run.array(f"pe_end/{number}").astype(np.float64))[-1]
        for number, sigma in zip(kept["member"], kept["sigma"], strict=True)
    }
    labels = run.config["task"].get("labels")
    found = partitions.best_partition(next(iter(maps.values()))) if labels is None else np.array(labels)
    sorted_by = "groups that were found at the smallest sigma" if labels is None else "true groups"
    last = "" if beside is None else " Last: the correlation of the channels, without any model."
    shown = [
        Shown(
            "similarity",
            "Similarity of PEs",
            "Cosine similarity of the channels' centred PEs (mean over channels removed) after training, sorted by "
            f"{sorted_by}: do blocks appear as sigma falls?{last}",
            figures.similarity_by_sigma(
                maps, found, run_name(run), beside, reference_title="correlation of channels", note=f"seed {seed}"
            ),
        )
    ]
    ends = [next(iter(maps)), next(reversed(maps))]
    return shown + _on_brain(run, {name: maps[name] for name in dict.fromkeys(ends)}, seed)


def _on_brain(run: Run, maps: Mapping[str, np.ndarray], seed: int) -> list[Shown]:
    """Regions at their places, coloured by the groups of their PEs; nothing without places, or without nilearn."""
    places, partner = run.config["shape"]["positions"], run.config["task"].get("partner")
    if places is None or partner is None or find_spec("nilearn") is None:
        return []
    nearest = {name: (similar - 3 * np.eye(len(similar))).argmax(axis=1) for name, similar in maps.items()}
    return [
        Shown(
            "brain",
            "PEs on a brain",
            "Regions coloured by the groups that their PEs fall into, and a line from each to its nearest neighbour in "
            "the PE: do groups keep together, and do lines cross to the mirror region?",
            figures.regions_on_brain(
                {name: partitions.best_partition(similar) for name, similar in maps.items()},
                np.array(places),
                run_name(run),
                nearest,
                np.array(partner),
                note=f"groups: the best partition of the PE of seed {seed} by modularity",
            ),
        )
    ]


def _encodings(run: Run, seen: Tables) -> list[Shown]:
    return [
        Shown(
            "encodings",
            "Every encoding",
            "Held-out error and structure side by side: an encoding may predict well and show nothing.",
            figures.measure_by_name(
                seen.members,
                seen.analysis,
                seen.metrics,
                seen.name,
                measures_in(run)[:1],
                run.baselines,
                chance_of(run),
                SHOWN,
            ),
        )
    ]


def _settings(run: Run, seen: Tables) -> list[Shown]:
    """Sigma against what else was varied; with a single sigma, the last of that against the rest."""
    name, shown = seen.name, []
    members, across = _laid_out(seen.members)
    last = seen.metrics[(seen.metrics["step"] == seen.metrics["step"].max()) & (seen.metrics["split"] == "test")]
    errors = _finished(last[["member", "condition", "value"]].merge(members, on="member"))
    titles = {each: f"{share_title(each, members)[0]} in test" for each in errors["condition"].unique()}
    errors = errors.assign(condition=errors["condition"].map(titles))
    shown.append(
        Shown(
            "errors",
            "Held-out error",
            "Error by what was varied, a map for each share of hidden channels.",
            figures.heatmap_by_settings(
                errors,
                *(name, "down", "across", "held-out error"),
                {"across": across, "down": "", "condition": ""},
                "condition",
            ),
        )
    )
    for measure in measures_in(run)[:1]:
        rows = seen.analysis[(seen.analysis["step"] == seen.analysis["step"].max()) & (seen.analysis["block"] == -1)]
        rows = rows[(rows["analysis"] == measure[0]) & (rows["target"] == measure[1])]
        table = _finished(rows[["member", "value"]].merge(members, on="member"))
        shown.append(
            Shown(
                "structure",
                SHOWN[measure].capitalize(),
                "Structure of the PE after training, by what was varied.",
                figures.heatmap_by_settings(
                    table, name, "down", "across", SHOWN[measure], {"across": across, "down": ""}
                ),
            )
        )
    return shown


def _laid_out(members: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Members with columns for the rows of a map, `down`, and for its columns, `across`, and what these columns are."""
    first = members["parts"].iloc[0]
    if members["sigma"].nunique() > 1 or len(first) < 2 or not first[-1][0]:
        return members.assign(down=members["setting"], across=members["sigma"]), figures.SIGMA
    down = [", ".join(worded(part) for part in parts[:-1]) for parts in members["parts"]]
    return members.assign(down=down, across=members["parts"].str[-1].str[-1]), first[-1][0]


def _finished(table: pd.DataFrame) -> pd.DataFrame:
    """The table without the values of members that diverged; their rows stay, so that the map says what is missing."""
    return table.assign(value=table["value"].where(table["state"] == "done"))

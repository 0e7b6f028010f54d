"""The figures of the studies on Latin squares, each with what to look for in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from placecode.analysis import alignment, attention, geometry
from placecode.data.puzzles import CLASSES
from placecode.encodings import sinusoid
from placecode.experiments import predictors
from placecode.experiments.claims import NotInRun
from placecode.experiments.latin.effects import AUTHORS_MEANS
from placecode.experiments.measures import reference_members
from placecode.experiments.reading import accuracy, dials, done, final_accuracy, in_sweep, measured, members_of, swept
from placecode.reports import figures
from placecode.reports.pages.base import Shown
from placecode.runs.read import Run

PUBLISHED = {"2d-fixed": (0.977, 0.1), f"learned, {figures.SIGMA} 0.2": (0.956, 0.0)}
PUBLISHED |= {"relative, causal": (0.92, 0.0)}
"""Held-out accuracy in the paper, and the dropout that it was reached with."""


def run_name(run: Run) -> str:
    """For the foot of a figure: the study and its scale, and the folder where that has a name of its own."""
    folder = run.path.resolve().name
    kind = f"{run.study}, {run.config['scale']} scale"
    return kind if folder == run.study else f"{folder} ({kind})"


# ------------------------------------------------------------------------------------------------------- lst-sigma


def of_sigmas(run: Run) -> list[Shown]:
    name, chance = run_name(run), chance_of(run)
    members = _named(run)
    shown = [
        Shown(
            "accuracy",
            "Accuracy against sigma",
            "Look at the gap between train and ood: does it open as sigma grows? OOD puzzles are unlike any training "
            "puzzle; test puzzles come from the same distribution as the training ones.",
            figures.accuracy_by_sigma(members, run.metrics, name, chance),
        ),
        Shown(
            "curves",
            "Learning curves",
            "Does ood follow train? Where a model memorizes, train climbs and ood stays near chance. A curve that "
            "still rises at the end has not settled.",
            figures.learning_curves(members, run.metrics, name, chance),
        ),
    ]
    if not in_sweep(run).any():  # a piece that holds the references alone
        return shown
    shown += _published(run)
    if len(swept(run)["sigma"].unique()) > 2:
        shown += _relations(run)
    shown += _pictures(run)
    shown += _behaviour(run)
    return shown


def _published(run: Run) -> list[Shown]:
    """Our curve beside the authors', where the run is of their protocol: learned PEs on their puzzles."""
    fields, rows = run.config["fields"], swept(run)
    theirs = fields["puzzles"] is not None and fields["learn"] and run.config["scale"] == "paper"
    if not theirs or len(set(rows["sigma"]) & set(AUTHORS_MEANS)) < 3:
        return []
    table = rows.assign(value=rows["member"].map(accuracy(run)))
    return [
        Shown(
            "published",
            "Our curve beside the authors'",
            "OOD accuracy by sigma: our means with 95% intervals over seeds, and the authors' own means over 15 seeds "
            "at epoch 4,000. Do the crosses lie within the bars?",
            figures.beside_published(table, AUTHORS_MEANS, run_name(run), chance_of(run)),
        )
    ]


def chance_of(run: Run) -> float:
    return 1 / float(run.config["shape"]["outputs"])


def _named(run: Run) -> pd.DataFrame:
    """The members under the names that figures show, and without what those names already say."""
    members = members_of(run)
    names = members["label"].where(~in_sweep(run), members["encoding"])
    return members.assign(encoding=names, options="{}").drop(columns=["dropout_at_evaluation"])


def _relations(run: Run) -> list[Shown]:
    """Which measure goes with accuracy: over the sigmas, and at a fixed one."""
    table = predictors.relations(run)
    if table is None:
        return []
    shown = [
        Shown(
            "relations",
            "What goes with accuracy, over the sigmas",
            "Each dot is a sigma, filled after training, hollow before. Where the hollow dots lie on the same curve "
            "as the filled ones, the measure follows sigma before anything is learned, and its correlation with "
            "accuracy says nothing about learning.",
            figures.relation_panels(table, run_name(run), predictors.notes(run)),
        )
    ]
    if (answers := predictors.correlations(run)) is not None:
        shown.append(
            Shown(
                "fixed-sigma",
                "What predicts accuracy once sigma is held fixed",
                "Rank correlation with held-out accuracy and its 95% interval over seeds. On the left over the "
                "sigmas, where everything that follows sigma predicts accuracy. Then among members of the same "
                "sigma: before training, after training, and after training once the value before is accounted for. "
                "Filled: p < 0.05, adjusted for the number of measures (FDR); by permuting seeds, and on the left with "
                "the sigmas as independent points.",
                figures.forest(answers, run_name(run)),
            )
        )
    return shown


def _example(run: Run, sigma: float) -> tuple[int, str]:
    """The first seed of a sigma that finished, and how to call it."""
    rows = run.members[in_sweep(run) & (run.members["sigma"] == sigma)]
    fine = rows[rows["state"] == "done"]
    title = f"{figures.SIGMA} = {sigma:g}" + ("" if len(fine) else ", diverged")
    return int((fine if len(fine) else rows)["member"].iloc[0]), title


def _pictures(run: Run) -> list[Shown]:
    """PEs and attention of example members; nothing where a run was kept without its arrays."""
    positions = np.array(run.config["shape"]["positions"])
    names = [f"r{int(r) + 1}c{int(c) + 1}" for r, c in positions]
    rule = int(positions.max()) + 1
    small, large = (_example(run, sigma) for sigma in dials(run))
    shown = []
    if run.has_array(f"pe_end/{small[0]}"):  # an encoding without one vector per cell, as rotary, has no such picture
        width = int(run.members["width"].iloc[0])
        truth = alignment.similarity(sinusoid(positions, width))
        pes = {m: [run.array(f"pe_{m}/{number}") for number, _ in (small, large)] for m in ("start", "end")}
        maps = [(alignment.similarity(pes["start"][i]), alignment.similarity(pes["end"][i])) for i in (0, 1)]
        titles = (small[1], large[1], "true arrangement")
        shown.append(
            Shown(
                "similarity",
                "What the PE has become",
                "Cosine similarity of the centred PEs (mean over cells removed) of any two cells, of one member each. "
                "Cells are in order, row by row. In the true "
                "arrangement (the paper's 2d-fixed) cells of a row are blocks on the diagonal, and cells of a column "
                "stripes beside it. Do they appear during training?",
                figures.similarity_maps(truth, maps[0], maps[1], names, run_name(run), titles, rule=rule),
            )
        )
        shown.append(_token_maps(run, pes, (small[1], large[1]), positions, names))
        shown += _geometry(run)
    if run.has_array(f"attention_end/{small[0]}"):
        shown.append(_attention(run, (small, large), positions, rule))
    return shown


def _token_maps(
    run: Run, pes: dict[str, list[np.ndarray]], titles: Sequence[str], positions: np.ndarray, names: Sequence[str]
) -> Shown:
    panels = []
    for i, title in enumerate(titles):
        lie = np.stack([positions[:, 1], -positions[:, 0]], axis=1)  # as on the page: columns to the right, rows down
        for moment, words in (("start", "before"), ("end", "after")):
            found = geometry.mds(pes[moment][i])
            lie = geometry.turned(found.places, lie)
            panels.append((f"{title}, {words}", lie, float(found.stress)))
    true = geometry.mds(sinusoid(positions, pes["end"][0].shape[-1]))
    onto = np.stack([positions[:, 1], -positions[:, 0]], axis=1)
    panels.append(("true arrangement", geometry.turned(true.places, onto), float(true.stress)))
    gaps = np.abs(positions[:, None] - positions[None]).sum(-1)
    edges = [(int(a), int(b)) for a, b in np.argwhere(gaps == 1) if a < b]
    return Shown(
        "token-maps",
        "The PEs as a map",
        "The cells placed so that their distances are those of their PEs, as well as a plane allows (metric MDS; "
        "stress 0 is perfect, and random vectors of many features have about 0.4). Lines join neighbours of the true "
        "grid: a PE that mirrors the puzzle draws the grid, one that does not draws a tangle.",
        figures.token_maps(panels, edges, names, run_name(run)),
    )


def _geometry(run: Run) -> list[Shown]:
    labels = {
        "norm": "root mean square of the PE",
        "effective_dimension": "effective dimension",
        "moved_relative": "distance moved / size at the start",
    }
    parts = []
    for analysis in labels:
        for moment in ("start", "end"):
            try:
                values = measured(run, analysis, "start" if analysis == "moved_relative" else "", moment)
            except NotInRun:
                continue
            rows = swept(run)[["member", "sigma", "seed"]]
            parts.append(rows.assign(measure=analysis, moment=moment, value=rows["member"].map(values)))
    if not parts:
        return []
    shown = Shown(
        "geometry",
        "How far the PEs moved",
        "Size and dimension of the PEs before and after training, and how far they went. A PE that hardly moves "
        "has learned little of an arrangement: what it is used for, the rest of the model has learned.",
        figures.before_and_after(pd.concat(parts, ignore_index=True), run_name(run), labels),
    )
    return [shown]


def _attention(run: Run, examples: Sequence[tuple[int, str]], positions: np.ndarray, rule: int) -> Shown:
    columns = [(title, run.array(f"attention_end/{number}").mean(1)) for number, title in examples]
    for name, numbers in reference_members(members_of(run)).items():
        kept = [number for number in numbers if run.has_array(f"attention_end/{number}")]
        if kept:
            title = name if len(kept) > 1 else f"{name}, one seed"
            columns.append((title, np.mean([run.array(f"attention_end/{number}").mean(1) for number in kept], axis=0)))
    ideal = attention.ideal_map(positions)
    columns.append(("same row or column", np.broadcast_to(ideal, (len(columns[0][1]), *ideal.shape))))
    return Shown(
        "attention",
        "Where the models look",
        "Attention from each cell (down) to each cell (across) after training, averaged over held-out puzzles, block "
        "by block, of one member of each sigma, and of 2d-fixed (the mean over all seeds that the run has maps of). On "
        "the right the map that spreads attention evenly over the cells of the same row or column.",
        figures.attention_maps(columns, run_name(run), rule),
    )


def _behaviour(run: Run) -> list[Shown]:
    levels = [0.0, *run.config["fields"].get("noise", [])]
    shown = []
    rows = swept(run)[["member", "sigma", "seed"]]
    if len(levels) > 1:
        few = rows[rows["sigma"].isin(_few_sigmas(run))]
        table = pd.concat(
            [
                few.assign(split=split, level=level, value=few["member"].map(values))
                for split in ("train", "ood")
                for level in levels
                for values in [measured(run, "noise_accuracy", f"{split} {level:g}")]
            ],
            ignore_index=True,
        )
        shown.append(
            Shown(
                "noise",
                "Noise on the token embeddings",
                "Accuracy when normal noise is added to the embedding of every cell. On training puzzles all sigmas "
                "begin near 1, so there the fall can be compared; on held-out ones a model without skill has little "
                "to lose.",
                figures.noise_curves(table, run_name(run), chance_of(run)),
            )
        )
    try:
        table = pd.concat([_condition(run, rows, name) for name in CLASSES], ignore_index=True)
    except (NotInRun, KeyError):
        return shown
    shown.append(
        Shown(
            "classes",
            "Classes of puzzles",
            "Accuracy on held-out puzzles by class, and how sure the models are of their answers. Where confidence "
            "stays high while accuracy falls, the models do not know that they are guessing.",
            figures.conditions_by_sigma(table, run_name(run), chance_of(run)),
        )
    )
    shown.append(_errors(run))
    return shown


def _few_sigmas(run: Run) -> list[float]:
    """Sigmas enough for a picture: the usual five where they are there, else all."""
    sigmas = [float(sigma) for sigma in np.sort(swept(run)["sigma"].unique())]
    usual = [sigma for sigma in sigmas if sigma in (0.1, 0.2, 0.5, 1.0, 2.0)]
    return usual if len(usual) > 2 else sigmas


def _condition(run: Run, rows: pd.DataFrame, name: str) -> pd.DataFrame:
    final = run.metrics[(run.metrics["step"] == run.metrics["step"].max()) & (run.metrics["split"] == "ood")]
    final = final[(final["metric"] == "accuracy") & (final["condition"] == name)].set_index("member")["value"]
    sure = measured(run, "confidence", name)
    return rows.assign(condition=name, accuracy=rows["member"].map(final), confidence=rows["member"].map(sure))


def _errors(run: Run) -> Shown:
    positions = np.array(run.config["shape"]["positions"]).astype(int)
    panels = []
    for sigma in dict.fromkeys(dials(run)):
        numbers = swept(run).loc[swept(run)["sigma"] == sigma, "member"]
        grid = np.full(positions.max(0) + 1, np.nan)
        for row, column in positions:
            values = measured(run, "error_rate", f"r{row + 1}c{column + 1}")
            grid[row, column] = values.reindex(numbers).mean()
        panels.append((f"{figures.SIGMA} = {sigma:g}", grid))
    return Shown(
        "errors",
        "Where the errors are",
        "The share of held-out puzzles that are answered wrongly, by the cell that is asked for; mean over seeds.",
        figures.error_maps(panels, run_name(run)),
    )


# --------------------------------------------------------------------------------------------------- lst-encodings


def of_encodings(run: Run) -> list[Shown]:
    name, chance = run_name(run), chance_of(run)
    members = done(run)
    members = members.assign(name=members["label"])
    final = final_accuracy(run, members)
    rows = run.metrics[(run.metrics["metric"] == "accuracy") & (run.metrics["condition"] == "all")]
    curves = rows[rows["split"] == "ood"].merge(members, on="member")
    published = {label: value for label, value in PUBLISHED.items() if label in set(members["name"])}
    least = float(final["dropout"].min())
    plain = final[final["dropout"] == least]
    return [
        Shown(
            "dropout",
            "What the dropout is worth",
            "Accuracy without and with the dropout of the authors' fixed encodings (a tenth of the features of the "
            "sum of embedding and PE, at every block, at evaluation too). Crosses: the published accuracies. Is the "
            "order of the encodings the same on both sides?",
            figures.worth_of_dropout(final, name, published, chance),
        ),
        Shown(
            "encodings",
            f"All encodings, {f'dropout {least:g}' if least else 'without dropout'}",
            "Train, test and held-out accuracy of every encoding. An encoding that cannot tell the cells apart does "
            "not even fit its training puzzles; one that fits them and fails on held-out puzzles has memorized.",
            figures.accuracy_by_name(plain, name, chance),
        ),
        Shown(
            "curves",
            "Learning curves on held-out puzzles",
            "Does a curve still rise at the end? Then its encoding is slower, not worse.",
            figures.curves_by_name(curves, name, chance),
        ),
    ]

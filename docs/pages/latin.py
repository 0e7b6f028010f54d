"""Compute the numbers of the sections of docs/reproduction.md on Latin squares.

Accuracy is that on held-out (OOD) puzzles after training, unless another split or epoch is named. The authors are those
of the paper. For other terms see tables.py.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import tables
from tables import AFTER, BEFORE, BEYOND, Findings, Numbers, Runs, significant
from templating import columns_table, directions, effect, grid, number, plain, signed

from placecode.analysis import stats
from placecode.analysis.stats import Interval, interval
from placecode.experiments.claims import UNDECIDED, direction_text
from placecode.experiments.latin.effects import (
    AUTHORS_MEANS,
    AUTHORS_SEEDS,
    PLATEAU_EPOCH,
    accuracy_at_epoch_200,
    late_gain,
)
from placecode.experiments.latin.squares import LstSigma
from placecode.experiments.latin.training import PE_VARIANTS
from placecode.experiments.latin.training_claims import SLINGSHOT_SIGMAS
from placecode.experiments.reading import (
    MAX_SETTLED_CHANGE,
    accuracy,
    analysis_values,
    at_sigma,
    by_sigma,
    encoding_accuracy,
    measure_and_accuracy,
    select,
    sigma_difference,
    sweep_members,
)
from placecode.reports.pages.training import SPIKE, spikes
from placecode.runs.read import Run

IDEAL, NEAR_FIXED = "attention correlation to the ideal map", "attention correlation to 2d-fixed"
CHANCE_DRAWS = 10_000
"""Number of draws of two sets of seeds in `chance_gap`."""
(MAX_CURVE_GAP,) = (claim.margin for claim in LstSigma.claims if claim.id == "sigma-curve")
"""Largest mean absolute difference from the authors' curve that counts as agreement, from the claim "sigma-curve"."""
LOSSES = {
    "two log-softmax": ("log_softmax=2", True),
    "one log-softmax": ("log_softmax=1", True),
    "one log-softmax, PE frozen": ("log_softmax=1", False),
}
"""Kinds of members in lst-slingshot: the name of their data, which states the loss, and whether the PE is trained."""
TWO, ONE, ONE_FROZEN = LOSSES
HELD_OUT_PUZZLES = 108
"""Number of held-out puzzles."""
PAUSE_EPOCHS = 100
"""Number of epochs with a loss of 0 after which the other runs stop training a model."""
LEARNED, FROZEN, _, AT_INPUT = PE_VARIANTS
"""Labels of members of lst-frozen: PEs that are learned, frozen, and learned at the input alone."""


def steps_per_epoch(run: Run) -> int:
    """Return the number of training steps per epoch."""
    return int(run.metrics["step"].max()) // int(run.config["fields"]["epochs"])


def curve(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compare our curve of accuracy over sigma with the curve of the authors."""
    run = runs["lst-sigma"]
    table, rows = curve_gaps(run), sweep_members(run)
    change = by_sigma(run, late_gain(run))
    means = change.mean(axis="columns")
    late = [float(str(sigma)) for sigma, gain in means.items() if abs(gain) >= MAX_SETTLED_CHANGE]
    noisy = {
        f"{words}, noise {level}": analysis_values(run, "block_noise_accuracy", f"{split} {level}")
        for split, words in (("train", "training"), ("ood", "held-out"))
        for level in ("0", "0.2")
    }
    sigmas = (0.1, 0.2, 0.5, 1.0, 1.5, 2.0)
    noise_columns = {
        name: [plain(interval(at_sigma(run, values, sigma)), 3) for sigma in sigmas] for name, values in noisy.items()
    }
    return {
        "table": curve_table(table),
        "sigmas": len(table),
        "all_sigmas": len(table) == len(AUTHORS_MEANS),
        "seeds": AUTHORS_SEEDS,
        "limit": MAX_CURVE_GAP,
        "draws": CHANCE_DRAWS,
        "early": PLATEAU_EPOCH,
        "largest_in_errors": float((table["gap"] / table["error"]).abs().max()),
        "mean_gap": float(table["gap"].abs().mean()),
        "by_chance": chance_gap(run),
        "share_lower": float((table["gap"] < 0).mean()),
        "above_ours": [sigma for sigma, row in table.iterrows() if row["theirs"] > row["values"].high],
        "late": late,
        "late_gains": means.loc[late],
        "late_gains_are_positive": bool((means.loc[late] > 0).all()),
        "settled": means.drop(late),
        "largest_change": change.abs().max().max(),
        "zero_loss_epochs": rows["zero_loss_epoch"],
        "all_kept_zero_loss": bool((rows["settled_epoch"] < 0).all() and (rows["zero_loss_epoch"] > 0).all()),
        "noise_table": columns_table({"sigma": map("{:g}".format, sigmas)} | noise_columns),
        "noise_on_train": sigma_difference(run, noisy["training, noise 0.2"], 0.2, 1.0),
        "noise_held_out": sigma_difference(run, noisy["held-out, noise 0.2"], 0.2, 2.0),
    }


def curve_gaps(run: Run) -> pd.DataFrame:
    """Return our accuracy and that of the authors as a table by sigma.

    The columns are `theirs` (the authors' mean), `mean` (ours), `gap` (ours minus theirs), `error` (the standard error
    of the gap if both have equal spread), `stopped` (the median epoch at which training stopped), and `values` (our
    mean with its interval).
    """
    values = by_sigma(run, accuracy(run))
    sigmas = [sigma for sigma in AUTHORS_MEANS if sigma in values.index]
    ours, theirs = values.loc[sigmas], pd.Series(AUTHORS_MEANS).loc[sigmas]
    average = ours.mean(axis="columns")
    columns = {
        "theirs": theirs,
        "mean": average,
        "gap": average - theirs,
        "error": ours.std(axis="columns", ddof=1) * np.sqrt(1 / ours.count(axis="columns") + 1 / AUTHORS_SEEDS),
        "stopped": sweep_members(run).groupby("sigma")["zero_loss_epoch"].median().loc[sigmas],
    }
    return pd.DataFrame(columns).assign(values=[interval(row) for _, row in ours.iterrows()])


def curve_table(table: pd.DataFrame) -> str:
    """Return the result of `curve_gaps` as a Markdown table."""
    columns = {
        "sigma": [f"{sigma:g}" for sigma in table.index],
        "authors, epoch 4,000": table["theirs"].map(number),
        "ours": table["values"].map(partial(plain, digits=3)),
        "ours minus theirs": table["gap"].map("{:+.3f}".format),
        "in standard errors": (table["gap"] / table["error"]).abs().map("{:.1f}".format),
        "stopped at epoch (median)": table["stopped"].map("{:.0f}".format),
    }
    return columns_table(columns)


def chance_gap(run: Run) -> Interval:
    """Return the mean absolute difference expected between curves of the same models with two sets of seeds.

    Its bounds are the 95% range. Seeds are drawn with replacement from our own, each with its accuracies at all sigmas.
    Deviations from the mean are scaled by sqrt(n / (n - 1)), so that their variance is not too small.
    """
    values = by_sigma(run, accuracy(run)).to_numpy()
    seeds = values.shape[1]
    deviations = (values - values.mean(axis=1, keepdims=True)) * np.sqrt(seeds / (seeds - 1))
    rng = np.random.default_rng(0)
    indices = (rng.integers(seeds, size=(CHANCE_DRAWS, AUTHORS_SEEDS)) for _ in range(2))
    first, second = (deviations[:, index].mean(axis=2) for index in indices)  # (sigmas, draws)
    gap = np.abs(first - second).mean(axis=0)
    low, high = np.quantile(gap, [0.025, 0.975])
    return Interval(float(gap.mean()), float(low), float(high))


def log_softmax(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compare training with two log-softmax functions in the loss, with one, and with one in true float32."""
    run, highest, by_id = runs["lst-slingshot"], runs["lst-slingshot-highest"], findings["lst-slingshot"]
    after, spike_counts = change_after_pause(run), spikes(run)
    two, one = members(run, TWO), [*members(run, ONE), *members(run, ONE_FROZEN)]
    gains = late_gain(run)[[*members(run, ONE, 0.2, 1.0), *members(run, ONE_FROZEN, 0.2, 1.0)]]
    exact_gains, exact_spikes = late_gain(highest), spikes(highest)
    settled = [f"settled-by-{PLATEAU_EPOCH}-at-{sigma:g}" for sigma in SLINGSHOT_SIGMAS]
    raised = [f"slingshots-raise-{kind}-at-{sigma:g}" for kind in ("accuracy", "frozen") for sigma in SLINGSHOT_SIGMAS]
    return {
        "table": losses_table(run),
        "sigmas": SLINGSHOT_SIGMAS,
        "pause": PAUSE_EPOCHS,
        "puzzles": HELD_OUT_PUZZLES,
        "early": PLATEAU_EPOCH,
        "two": two,
        "two_rest": bool(after[two].notna().all()),
        "most_changed_puzzles": sorted((after[two].abs() * HELD_OUT_PUZZLES).round())[-2:],
        "two_spike": bool(spike_counts[members(run, TWO, 0.2, 1.0)].any()),
        "settled_undecided": directions(by_id, UNDECIDED, *settled),
        "one": one,
        "one_spikes_twice": bool((spike_counts[one] >= 2).all()),
        "first_spikes": first_spikes(run)[one],
        "raised_undecided": directions(by_id, UNDECIDED, *raised),
        "gains": gains,
        "none_falls": bool((gains >= 0).all()),
        "exact": highest.config,
        "exact_gains": exact_gains,
        "exact_all_gain_and_spike": bool((exact_gains > 0).all() and (exact_spikes > 0).all()),
        "exact_first_spikes": first_spikes(highest),
    }


def members(run: Run, loss: str, *sigmas: float) -> list[int]:
    """Return the numbers of the members with one of LOSSES, at these sigmas; at all SLINGSHOT_SIGMAS if none is
    given."""
    data, learn = LOSSES[loss]
    rows = sweep_members(run)
    rows = rows[rows["sigma"].isin(sigmas or SLINGSHOT_SIGMAS) & (rows["data"] == data) & (rows["learn"] == learn)]
    return list(rows["member"])


def losses(run: Run) -> pd.DataFrame:
    """Return the training loss as a table (epochs, members)."""
    rows = run.metrics[(run.metrics["split"] == "train") & (run.metrics["metric"] == "loss")]
    table = rows[rows["condition"] == "all"].pivot(index="step", columns="member", values="value").sort_index()
    return table.set_axis(table.index // steps_per_epoch(run))


def first_spikes(run: Run) -> pd.Series:
    """Return, by member, the first evaluated epoch at which the training loss is above SPIKE after it was below a tenth
    of SPIKE; -1 if none is."""
    table = losses(run)
    risen = (table < SPIKE / 10).cummax().shift(fill_value=False) & (table > SPIKE)
    return risen.idxmax().where(risen.any(), -1)


def change_after_pause(run: Run) -> pd.Series:
    """Return, by member, how accuracy changed from PAUSE_EPOCHS epochs after the last positive training loss to the
    end; NaN if the training is not that long."""
    table, end = losses(run), accuracy(run)
    changes = {}
    for member, values in table.items():
        epochs = table.index[table.index >= values.index[values > 0].max() + PAUSE_EPOCHS]
        at_rest = accuracy(run, step=int(epochs[0]) * steps_per_epoch(run))[member] if len(epochs) else math.nan
        changes[member] = end[member] - at_rest
    return pd.Series(changes)


def losses_table(run: Run) -> str:
    """Return a table of accuracy and number of spikes of the training loss, by sigma and kind of member (LOSSES)."""
    early, end, spike_counts = accuracy_at_epoch_200(run), accuracy(run), spikes(run)
    rows = []
    for sigma, loss in product(SLINGSHOT_SIGMAS, LOSSES):
        before, after, counts = (values[members(run, loss, sigma)] for values in (early, end, spike_counts))
        change = signed(interval(after - before), 3)
        means = (plain(interval(values), 3) for values in (before, after))
        rows.append((f"{sigma:g}", loss, *means, change, f"{counts.min()} to {counts.max()}"))
    return grid(
        ("sigma", "loss", f"accuracy at epoch {PLATEAU_EPOCH}", "at the end", "change", "spikes per model"), rows
    )


def frozen(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compare learned PEs with frozen ones, and with PEs that are added only at the input."""
    run = runs["lst-frozen"]
    ood, train, sigmas = accuracy(run), accuracy(run, "train"), run.config["fields"]["sigmas"]
    by_kind = {kind: {sigma: select(run, ood, label=kind, sigma=sigma) for sigma in sigmas} for kind in PE_VARIANTS}
    main_kinds = {"learned": by_kind[LEARNED], "frozen": by_kind[FROZEN], "input": by_kind[AT_INPUT]}
    effects = {name: values[0.2] - values[2.0] for name, values in main_kinds.items()}
    columns = {"sigma": [f"{sigma:g}" for sigma in sigmas]}
    columns |= {kind: [plain(interval(values[sigma]), 3) for sigma in sigmas] for kind, values in by_kind.items()}
    gaps = [interval(by_kind[LEARNED][sigma] - by_kind[FROZEN][sigma]) for sigma in sigmas]
    return {
        "table": columns_table(columns | {"learned minus frozen": [signed(gap, 3) for gap in gaps]}),
        "effect_of_sigma": {name: interval(values) for name, values in effects.items()},
        "larger_effect": interval(effects["learned"] - effects["frozen"]),
        "above_tiny": {name: interval(main_kinds[name][0.2] - main_kinds[name][0.01]) for name in ("learned", "input")},
        "accuracy": {name: pd.DataFrame(values).mean() for name, values in main_kinds.items()},
        "tiny_on_train": select(run, train, label=LEARNED, sigma=0.01).min(),
        "tiny_norm": select(run, analysis_values(run, "norm", ""), label=LEARNED, sigma=0.01).mean(),
        "lowest_on_train": train.min(),
        "models": len(run.members),
        "stopped": int((run.members["zero_loss_epoch"] >= 0).sum()),
    }


def dropout(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute how dropout changes the accuracy of each encoding, and how the encodings compare."""
    run, longer, sweep = (runs[name] for name in ("lst-encodings", "lst-encodings-long", "lst-sigma"))
    both = {name: runs[name] for name in ("lst-encodings", "lst-sigma-drawn")}
    norms = analysis_values(sweep, "norm", "")
    fixed, fixed_long = (encoding_accuracy(of_length, "sinusoid:axes=2", 0.0) for of_length in (run, longer))
    without_position = ("none", "alibi", "alibi:axes=2")
    return {
        "findings_long": findings["lst-encodings-long"],
        "epochs": run.config["fields"]["epochs"],
        "long_epochs": longer.config["fields"]["epochs"],
        "table": tables.dropout_table(run),
        "fixed_table": tables.fixed_table(both),
        "long_table": tables.dropout_table(longer),
        "as_published": {
            name: interval(
                encoding_accuracy(both[name], "learned:sigma=0.2", 0.0)
                - encoding_accuracy(both[name], "sinusoid:axes=2", 0.1)
            )
            for name in both
        },
        "fixed_norm": select(sweep, norms, name="2d-fixed", dropout=0.0).mean(),
        "learned_norm": at_sigma(sweep, norms, 0.2).mean(),
        "dropped": encoding_accuracy(run, "sinusoid:axes=2", 0.1).mean(),
        "dropped_long": encoding_accuracy(longer, "sinusoid:axes=2", 0.1).mean(),
        "plain_long": fixed_long.mean(),
        "gain_plain": interval(fixed_long - fixed),
        "minus": partial(accuracy_gap, run),
        "relative_worst": encoding_accuracy(run, "relative:axes=2", 0.0).min(),
        "no_position_does_not_fit": all(encoding_accuracy(run, x, 0.0, "train").max() < 0.6 for x in without_position),
    }


def accuracy_gap(run: Run, encoding: str, reference: str, dropout: float = 0.0) -> Interval:
    """Return the accuracy of an encoding minus that of the encoding `reference`, paired by seed."""
    return interval(encoding_accuracy(run, encoding, dropout) - encoding_accuracy(run, reference, dropout))


def structure(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute which measures of PE and attention predict accuracy."""
    run, drawn = runs["lst-sigma"], runs["lst-sigma-drawn"]
    start = {
        sigma: at_sigma(run, analysis_values(run, "procrustes", "2d-fixed", "start"), sigma) for sigma in (0.1, 2.0)
    }
    x, y = (table.to_numpy() for table in measure_and_accuracy(run, "attention_cosine", "2d-fixed"))
    sigmas = (0.1, 0.2, 1.0)
    shapes = {when: analysis_values(run, "attention_correlation", "2d-fixed", when) for when in ("start", "end")}
    by_member = (run.members.set_index("member")["sigma"], accuracy(run))
    sigma_and_accuracy = (by_sigma(run, values).to_numpy() for values in by_member)
    return {
        "significant": {"published": significance(run), "drawn": significance(drawn)},
        "pe_measures": pe_measures(run),
        "pe_measures_drawn": pe_measures(drawn),
        "correlation": {
            "published": partial(tables.correlation_text, run),
            "drawn": partial(tables.correlation_text, drawn),
        },
        "correlation_table": tables.correlation_table(tables.correlations(run.path)),
        "movement_table": tables.movement_table(run),
        "sigma_itself": stats.bootstrap(stats.between_correlation, *sigma_and_accuracy),
        "start_is_scale_free": float((start[0.1] - start[2.0]).abs().max()) < 1e-5,
        "even": attention(run, "attention_cosine", "even"),
        "cosine": attention(run, "attention_cosine", "2d-fixed"),
        "shape_change": interval(at_sigma(run, shapes["end"] - shapes["start"], 0.2)),
        "beyond_test": stats.bootstrap(
            stats.partial_within_correlation, x, y, by_sigma(run, accuracy(run, "test")).to_numpy()
        ),
        "change": {sigma: tables.relative_change(run, sigma) for sigma in sigmas},
        "closed": {sigma: tables.gap_closed(run, sigma) for sigma in sigmas},
        "smallest_minus_small": sigma_difference(run, accuracy(run), 0.1, 0.2),
        "IDEAL": IDEAL,
        "NEAR_FIXED": NEAR_FIXED,
        "BEFORE": BEFORE,
        "BEYOND": BEYOND,
    }


def pe_measures(run: Run) -> int:
    """Return the number of measures of the PE that are correlated with accuracy."""
    return int(tables.correlations(run.path).query("not of_attention")["measure"].nunique())


def significance(run: Run) -> dict[str, dict[str, set[str]]]:
    """Return the names of the measures of the PE and of attention that predict accuracy significantly, by question.

    The questions are: before training, after training, and after training given the value before.
    """
    questions = {"before": BEFORE, "after": AFTER, "beyond": BEYOND}
    return {
        kind: {name: significant(run, question, kind == "attention") for name, question in questions.items()}
        for kind in ("pe", "attention")
    }


def attention(run: Run, analysis: str, target: str) -> dict[float, dict[str, float]]:
    """Return the mean of a measure of attention by sigma, before and after training."""
    times = {when: analysis_values(run, analysis, target, when) for when in ("start", "end")}
    sigmas = (0.1, 0.2, 2.0)
    return {s: {when: at_sigma(run, values, s).mean() for when, values in times.items()} for s in sigmas}


def both_puzzles(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compare the claims on the published puzzles with those on puzzles that we generated."""
    published, drawn = findings["lst-sigma"], findings["lst-sigma-drawn"]
    pairs = {id: (finding, drawn[id]) for id, finding in published.items() if math.isfinite(finding.effect.mean)}
    rows = [(id, *map(effect, pair), "; ".join(map(direction_text, pair))) for id, pair in pairs.items()]
    judged = [id for id, finding in published.items() if not finding.note]
    same = [id for id in judged if published[id].direction == drawn[id].direction]
    return {
        "table": grid(("claim", "published puzzles", "our own", "directions"), rows),
        "judged": len(judged),
        "same": len(same),
        "decided": sum(drawn[id].direction != UNDECIDED for id in same),
        "DISTANCE": "Procrustes distance, scale-free",
        "IDEAL_COSINE": "attention cosine to the ideal map",
    }

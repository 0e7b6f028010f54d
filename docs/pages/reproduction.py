"""Writes docs/reproduction.md and its figures from the committed runs: python docs/pages/reproduction.py

The prose is in templates/reproduction.md.j2 and templates/reproduction/, one file for each section. The numbers of a
section come from the function of the same name, here or in a module beside this one. No result on the page is typed,
those of the paper aside. A conclusion stands in the template together with its condition, and the script fails if that
is false. A test compares the page with the tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import channel_settings
import channel_tables
import channels
import latin
import synergy
from latin_tables import Findings, claims_table, margin, noise_gaps, noise_table, runs_table
from templating import render
from wording import apart_from_zero, grid, mean

from placecode.experiments import study_of
from placecode.experiments.claims import direction_text, number_text
from placecode.experiments.reading import accuracy, at_sigma
from placecode.reports import figures
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]
Numbers = dict[str, Any]
Runs = dict[str, Run]
LATIN = {
    "lst-sigma": "the sweep over sigma: 20 sigmas x 15 seeds, and 15 2d-fixed models",
    "lst-frozen": "learned PEs beside frozen ones, 8 sigmas x 5 seeds",
    "lst-slingshot": "one log-softmax or two, 3 sigmas x 5 seeds, and frozen PEs with one",
    "lst-slingshot-highest": "one log-softmax in float32, 2 sigmas x 3 seeds",
    "lst-sigma-drawn": "the sweep on puzzles of our own, with 2d-fixed models with and without dropout",
    "lst-encodings": "every encoding x 15 seeds, with and without the authors' dropout",
    "lst-encodings-long": "2d-fixed for longer, since dropout makes training slow",
}
PREPROCESSING = {"brain-preprocessing": "the same people, recordings preprocessed in six ways: 4 sigmas x 5 seeds"}
SMALL = {
    "network-noise-quick": "small models on networks with less and more noise: 3 sigmas x 5 seeds",
    "network-size-quick": "small models on networks of 25 to 100 nodes: 3 sigmas x 5 seeds",
    "network-sigma-hidden-15": "small models on networks, 15% hidden in training: 3 sigmas x 5 seeds",
    "network-sigma-hidden-90": "the same with 90%",
    "synergy-optimizer-quick": "small models on 15 channels that no pairwise measure can see: optimizers, 3 seeds",
    "synergy-optimizer-quick-sgd": "the same, SGD with larger step sizes",
}
CHANNELS = {
    "network-sigma": "networks with known clusters: 11 sigmas x 15 seeds, a network for each seed",
    "network-sigma-50000": "3 sigmas x 5 seeds of it for five times as long",
    "brain-sigma": "five people at rest: 11 sigmas x 15 seeds, each person held out from three of them",
    "brain-sigma-50000": "3 sigmas x 5 seeds of it for as long as the paper trained",
    **PREPROCESSING,
    "brain-transfer": "PEs learned from two people, given to models that learn from two others; 10 seeds",
    "synergy-sigma": "30 channels in groups of three that no pairwise measure can see: 11 sigmas x 15 seeds",
    "synergy-sigma-512": "6 sigmas x 15 seeds of it with a larger batch",
    "synergy-size": "15 to 120 such channels, 10,000 to 250,000 samples x 3 seeds",
    "synergy-size-60": "60 channels: batch, step size and samples x 3 seeds",
    "synergy-size-60-long": "60 channels, the smaller batch for four times as long",
    "synergy-size-60-ramps": "60 channels, the smaller batch, with fewer hidden at first",
    "synergy-size-60-shares": "60 channels, the smaller batch, with more or fewer hidden",
    "synergy-size-60-widths": "60 channels, the smaller batch, models of other widths",
    "network-encodings": "every encoding on the networks, 5 seeds",
    "brain-encodings": "every encoding on the five people, 5 seeds",
    "synergy-encodings": "every encoding on 30 channels that no pairwise measure can see, 5 seeds",
    "network-sigma-window": "networks, five time points to a token: 3 sigmas x 5 seeds",
    "brain-sigma-window": "brains, five time points to a token: 3 sigmas x 5 seeds",
    "brain-mask": "brains, 15 to 90% hidden in training and in test: 3 sigmas x 5 seeds",
    **SMALL,
}
RUNS = {**LATIN, **CHANNELS}
PICTURES = {
    "network-sigma": ("structure", "error", "similarity"),
    "brain-sigma": ("structure", "networks", "error", "similarity", "brain"),
    "brain-preprocessing": ("preprocessing",),
    "brain-transfer": ("errors",),
    "synergy-sigma": ("structure", "error"),
    "synergy-size": ("structure",),
    "brain-mask": ("errors",),
    "synergy-encodings": ("encodings",),
    "lst-sigma": ("accuracy", "published", "relations", "fixed-sigma", "token-maps", "attention", "noise"),
    "lst-frozen": ("accuracy",),
    "lst-slingshot": ("slingshots-0.2", "slingshots-1", "slingshots-2"),
    "lst-sigma-drawn": ("fixed-sigma",),
    "lst-encodings": ("dropout", "encodings"),
    "lst-encodings-long": ("curves",),
}
"""Which figures of a run the page shows."""
SOME_DIVERGED = ("lst-encodings", "synergy-optimizer-quick-sgd")


def page(root: Path = ROOT) -> str:
    """The whole page, from the runs below `root`."""
    runs = {name: Run(root / "results" / name) for name in RUNS}
    findings = {name: {claim.id: claim.check(run) for claim in study_of(run).claims} for name, run in runs.items()}
    return render("reproduction", numbers(runs, findings))


def numbers(runs: Runs, findings: dict[str, Findings]) -> dict[str, Numbers]:
    """What the templates show, by section, and all findings."""
    sweep, drawn = runs["lst-sigma"], runs["lst-sigma-drawn"]
    return {
        "claims": findings,
        "paper": paper(sweep, findings),
        "curve": latin.curve(sweep),
        "log_softmax": latin.log_softmax(
            runs["lst-slingshot"], runs["lst-slingshot-highest"], findings["lst-slingshot"]
        ),
        "frozen": latin.frozen(runs["lst-frozen"], findings["lst-frozen"]),
        "dropout": latin.dropout(runs, findings),
        "structure": latin.structure(sweep, drawn, findings["lst-sigma"]),
        "both_puzzles": latin.both_puzzles(findings["lst-sigma"], findings["lst-sigma-drawn"]),
        "networks": channels.networks(runs, findings),
        "brains": channels.brains(runs, findings),
        "preprocessing": channels.preprocessing(runs["brain-preprocessing"], findings["brain-preprocessing"]),
        "transfer": channels.transfer(runs["brain-transfer"], findings["brain-transfer"]),
        "synergy": synergy.synergy(runs, findings),
        "synergy_size": synergy.synergy_size(runs["synergy-size"]),
        "synergy_60": synergy.synergy_60(runs),
        "encodings": channel_settings.encodings(runs),
        "hidden_shares": channel_settings.hidden_shares(runs["brain-mask"]),
        "windows": channel_settings.windows(runs),
        "small_models": channel_settings.small_models(runs),
        "runs": what_was_run(runs),
        "all_claims": {"tables": [claims_of(name, found) for name, found in findings.items() if applies(found)]},
        "limits": limits(sweep, runs["lst-frozen"]),
    }


def paper(sweep: Run, findings: dict[str, Findings]) -> Numbers:
    """Statements of the paper beside ours, and accuracy under noise."""
    noise = noise_gaps(sweep)
    strong = list(noise["held-out puzzles, 0.2 minus 2"].values())[3:]

    def row(words: str, run: str, claim: str) -> tuple[str, ...]:
        """A statement of the paper, its reviewers' discussion or the authors' logs beside our claim."""
        finding = findings[run][claim]
        effect = finding.found
        if math.isnan(effect.mean):
            return (words, "not in this run", "", "", "", number_text(finding), run)
        digits = 0 if abs(effect.mean) > 10 else 3
        ours = (f"{effect.mean:.{digits}f}", f"{effect.low:.{digits}f} to {effect.high:.{digits}f}")
        return (words, *ours, margin(finding.claim), direction_text(finding), number_text(finding), run)

    return {
        "found": findings["lst-sigma"],
        "row": row,
        "grid": grid,
        "noise": noise,
        "noise_table": noise_table(noise),
        "no_lead_under_strong_noise": not any(apart_from_zero(gap) for gap in strong),
    }


def what_was_run(runs: Runs) -> Numbers:
    """All runs, and which of their members diverged."""
    on_gpu = [run for name, run in runs.items() if name not in (*SMALL, *PREPROCESSING)]
    lost = runs["lst-encodings"].members.query("state == 'diverged'")
    return {
        "latin_table": runs_table({name: runs[name] for name in LATIN}, LATIN),
        "channels_table": channel_tables.runs_table(runs, CHANNELS),
        "gpus": sorted({str(run.environment.get("gpu")) for run in on_gpu}),
        "precisions": sorted({run.config["precision"] for run in runs.values()}),
        "diverged": len(lost),
        "only_low_temperature_diverged": set(lost["options"]) == {'{"temperature": 0.01}'},
        "all_others_finished": all(
            bool((run.members["state"] == "done").all()) for name, run in runs.items() if name not in SOME_DIVERGED
        ),
    }


def applies(found: Findings) -> bool:
    """Whether any claim is about this run."""
    return not all(finding.note for finding in found.values())


def claims_of(name: str, found: Findings) -> Numbers:
    missing = sum(math.isnan(finding.found.mean) for finding in found.values())
    return {"name": name, "table": claims_table(found), "not_in_run": missing}


def limits(sweep: Run, frozen: Run) -> Numbers:
    """Differences between members with the same settings in two runs."""
    again = {
        sigma: (latin.of_kind(frozen, latin.LEARNED, sigma) - at_sigma(sweep, accuracy(sweep), sigma)).dropna()
        for sigma in (0.2, 2.0)
    }
    return {"again": again, "mean_again": {sigma: mean(values) for sigma, values in again.items()}}


def draw(root: Path = ROOT, names: Sequence[str] = tuple(PICTURES)) -> None:
    """The figures that the page shows."""
    for name in names:
        run = Run(root / "results" / name)
        for shown in page_of(study_of(run), run).figures():
            if shown.name in PICTURES[name]:
                figures.save(shown.figure, root / "docs" / "images" / f"{name}-{shown.name}.png")


if __name__ == "__main__":
    (ROOT / "docs" / "reproduction.md").write_text(page())
    draw()

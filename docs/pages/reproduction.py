"""Write docs/reproduction.md and its figures from the committed runs: python docs/pages/reproduction.py

The prose is in templates/reproduction.md.j2 and templates/reproduction/, one file for each section. The numbers of a
section come from the function of the same name, here or in a module beside this one. No result on the page is typed by
hand, except those of the paper. A conclusion stands in the template together with its condition, and the script fails
if the condition is false. A test compares the page with the tables.
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import channel_settings
import channels
import latin
import synergy
import tables
from tables import Findings, Numbers, Runs
from templating import ROOT, grid, include_zero, render_sections, signed

from placecode.analysis.stats import interval
from placecode.experiments import experiment_of
from placecode.experiments.claims import direction_text, number_text
from placecode.experiments.reading import accuracy, at_sigma, select
from placecode.reports import figures
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run

GROUPS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
"""The runs of the page from reproduction.toml: the groups "latin" and "channels", each with its runs by name."""
RUNS = {**GROUPS["latin"], **GROUPS["channels"]}  # entries of both groups


def page() -> str:
    """Return the text of the whole page."""
    runs = {name: Run(ROOT / "results" / name) for name in RUNS}
    findings = {name: tables.findings_of(run) for name, run in runs.items()}
    numbers = {
        section.__name__: {"findings": findings[name], "fields": runs[name].config["fields"], **section(runs, findings)}
        for section, name in SECTIONS.items()
    }
    return render_sections("reproduction", {"findings_by_run": findings, **numbers})


def paper(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compare statements of the paper with our results, and compute accuracy under noise."""
    noise = tables.noise_gaps(runs["lst-sigma"])
    strong_noise = list(noise["held-out puzzles, 0.2 minus 2"].values())[3:]

    def row(statement: str, run: str, claim: str) -> tuple[str, ...]:
        """Return a table row: a statement of the paper, its reviewers or the authors' logs, and our result on it."""
        finding = findings[run][claim]
        effect = finding.effect
        if math.isnan(effect.mean):
            return (statement, "not in this run", "", "", "", number_text(finding), run)
        digits = 0 if abs(effect.mean) > 10 else 3
        ours = (f"{effect.mean:.{digits}f}", f"{effect.low:.{digits}f} to {effect.high:.{digits}f}")
        return (statement, *ours, tables.margin(finding.claim), direction_text(finding), number_text(finding), run)

    return {
        "row": row,
        "grid": grid,
        "noise": noise,
        "noise_table": grid(
            ("difference of accuracies, by noise", *(f"{level:g}" for level in next(iter(noise.values())))),
            [(words, *map(signed, gaps.values())) for words, gaps in noise.items()],
        ),
        "no_lead_under_strong_noise": include_zero(strong_noise),
    }


def what_was_run(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Return tables of all runs, and which of their members diverged."""
    on_gpu = [run for name, run in runs.items() if RUNS[name].get("gpu", True)]
    finished = [run for name, run in runs.items() if not RUNS[name].get("diverged", False)]
    diverged = runs["lst-encodings"].members.query("state == 'diverged'")
    about = {group: {name: run["about"] for name, run in GROUPS[group].items()} for group in ("latin", "channels")}
    return {
        "latin_table": tables.runs_table(runs, about["latin"], "epochs, at most", ("log-softmax", "puzzles")),
        "channels_table": tables.runs_table(runs, about["channels"], "steps"),
        "gpus": sorted({str(run.environment.get("gpu")) for run in on_gpu}),
        "precisions": sorted({run.config["precision"] for run in runs.values()}),
        "diverged": len(diverged),
        "only_low_temperature_diverged": set(diverged["options"]) == {'{"temperature": 0.01}'},
        "all_others_finished": all(bool((run.members["state"] == "done").all()) for run in finished),
    }


def all_claims(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Return, for every run that can test a claim, its table of claims and how many of its claims it cannot test."""
    return {
        "tables": [
            {
                "name": name,
                "table": tables.claims_table(of_run),
                "not_in_run": sum(math.isnan(finding.effect.mean) for finding in of_run.values()),
            }
            for name, of_run in findings.items()
            if not all(finding.note for finding in of_run.values())
        ]
    }


def limits(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute differences in accuracy between members with the same settings in two runs, due to rounding."""
    sweep, frozen = runs["lst-sigma"], runs["lst-frozen"]
    in_frozen, in_sweep = accuracy(frozen), accuracy(sweep)
    gaps = {
        sigma: select(frozen, in_frozen, label=latin.LEARNED, sigma=sigma) - at_sigma(sweep, in_sweep, sigma)
        for sigma in (0.2, 2.0)
    }
    gaps = {sigma: values.dropna() for sigma, values in gaps.items()}
    return {"gaps": gaps, "mean_gaps": {sigma: interval(values) for sigma, values in gaps.items()}}


SECTIONS = {
    paper: "lst-sigma",
    latin.curve: "lst-sigma",
    latin.log_softmax: "lst-slingshot",
    latin.frozen: "lst-frozen",
    latin.dropout: "lst-encodings",
    latin.structure: "lst-sigma",
    latin.both_puzzles: "lst-sigma-drawn",
    channels.networks: "network-sigma",
    channels.brains: "brain-sigma",
    channels.preprocessing: "brain-preprocessing",
    channels.transfer: "brain-transfer",
    synergy.synergy: "synergy-sigma",
    synergy.synergy_size: "synergy-size",
    synergy.synergy_60: "synergy-size-60",
    channel_settings.encodings: "synergy-encodings",
    channel_settings.hidden_shares: "brain-mask",
    channel_settings.windows: "network-sigma-window",
    channel_settings.small_models: "network-noise-quick",
    what_was_run: "lst-sigma",
    all_claims: "lst-sigma",
    limits: "lst-frozen",
}
"""The function of each section, and the main run of the section.

The function takes all runs and the findings on their claims, and returns the section's numbers. The template also sees
the findings and fields of the main run, as `findings` and `fields`.
"""


def draw() -> None:
    """Draw the figures of the page into docs/images."""
    for name, entry in RUNS.items():
        if "figures" in entry:
            run = Run(ROOT / "results" / name)
            for figure in page_of(experiment_of(run), run).figures():
                if figure.name in entry["figures"]:
                    figures.save(figure.figure, ROOT / "docs" / "images" / f"{name}-{figure.name}.png")


if __name__ == "__main__":
    (ROOT / "docs" / "reproduction.md").write_text(page())
    draw()

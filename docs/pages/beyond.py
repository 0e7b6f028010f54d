"""Writes docs/beyond.md and its figures from the committed runs: python docs/pages/beyond.py

No result on that page is typed. A sentence that draws a conclusion is written together with the condition under which
it is true, and the script fails where a table no longer bears it out. A test compares the page with the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from beyond_answers import ANSWERS, Answer
from latin_tables import Findings, claims_table
from wording import grid, picture, say

from placecode.analysis.stats import interval
from placecode.cli.reporting import command_of
from placecode.experiments import study_of
from placecode.experiments.latin import causal_effects, knob_claims
from placecode.experiments.latin.knobs import KnobStudy
from placecode.reports import figures
from placecode.reports.pages import knob_words
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]
PREFIX = "beyond"
"""What the names of its figures begin with."""

WORDS = """\
# Beyond the paper

<!-- made by docs/pages/beyond.py from the runs in results/; edit that file, not this one -->

What the paper and its reviewers left open about Latin squares, each question answered with a study of its own:
`placecode run NAME` makes it on a laptop in minutes with small models, `--scale paper` with the published one. Unless
it says otherwise, numbers here are of the published model and protocol, ended at epoch 200, on the published puzzles,
with 5 seeds of every setting, less those that diverged: held-out accuracy (chance is 0.25), 95% intervals over seeds of
Student's t, differences seed by seed. It is accuracy on 108 puzzles unlike any training puzzle, the same ones for all
models on grids of one size; intervals do not tell what other puzzles would change. Margins were declared in code before
the runs; there are many claims, and a few that barely clear their margin may do so by chance. `placecode claims
results/NAME` prints the verdicts, `placecode report results/NAME` draws all figures. What the paper states is
*reproduced* or *not reproduced*; questions of reviewers and our own are answered *yes* or *no*.

A setting counts as *settled* where its mean accuracy changed by at most 0.02 over the last quarter of training."""


def page() -> str:
    """The whole page."""
    runs = {name: Run(ROOT / "results" / name) for name in ANSWERS}
    findings = {name: {claim.id: claim.check(run) for claim in study_of(run).claims} for name, run in runs.items()}
    parts = [
        WORDS,
        *in_short(runs, findings),
        *(part for name, run in runs.items() for part in section(name, run, findings[name])),
        *made(runs),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def in_short(runs: dict[str, Run], findings: dict[str, Findings]) -> Iterator[str]:
    yield "## In short"
    yield "\n".join(
        f"- **{ANSWERS[name].question}** {ANSWERS[name].short(run, findings[name])}" for name, run in runs.items()
    )


def section(name: str, run: Run, found: Findings) -> Iterator[str]:
    """A question, its answer in a sentence and at length, its figures, and all claims with their intervals."""
    answer: Answer = ANSWERS[name]
    yield f"## {answer.question}"
    yield f"`{name}`. {answer.short(run, found)}"
    shown = {each.name: each for each in page_of(study_of(run), run).figures()}
    for figure in answer.figures:
        yield picture(f"{PREFIX}-{name}", figure, shown[figure].title, shown[figure].caption)
    yield from answer.long(run, found)
    yield claims_table(found)
    unasked = [f"{finding.claim.id} ({finding.note})" for finding in found.values() if finding.note]
    if unasked:
        yield f"Undecided for want of members: {'; '.join(unasked)}."
    study = study_of(run)
    assert isinstance(study, KnobStudy)
    yield " ".join(knob_words.unsettled_words(run, study.lines(run), most=len(run.members)))


def further(name: str) -> list[Run]:
    """The other runs that an answer rests on."""
    return [Run(ROOT / "results" / other) for other in ANSWERS[name].also]


def made(runs: dict[str, Run]) -> Iterator[str]:
    yield "## How the runs were made"
    rows = []
    for run in (each for name in runs for each in (runs[name], *further(name))):
        study = study_of(run)
        puzzles = run.config["fields"]["puzzles"]
        command = command_of(run, study).replace(f"--puzzles {puzzles}", "--puzzles DIR")
        lost = int((run.members["state"] == "diverged").sum())
        members = f"{len(run.members)} of {run.config['total']}" + (f", {lost} diverged" if lost else "")
        drawn = [part for part, about in run.config["task"].get("parts", {}).items() if about["source"] == "drawn"]
        source = "; ".join(["published" if puzzles else "our own", *(f"{part} our own" for part in drawn)])
        rows.append((run.path.name, members, source, f"`{command}`"))
    yield grid(("run", "members", "puzzles", "command"), rows)
    yield (
        "Of `lst-causal` members 345 to 484, and of `lst-depth` members 75 to 149, were made later, by a later version "
        "of the code, and merged."
    )
    yield rounding(runs)


def rounding(runs: dict[str, Run]) -> str:
    """How much the same members differ between two runs."""
    heads, causal = runs["lst-heads"], runs["lst-causal"]
    sigmas = heads.config["fields"]["sigmas"]
    gaps = {
        sigma: interval(
            (knob_claims.of(heads, [sigma], heads=1) - causal_effects.of(causal, "learned", [sigma])).to_numpy()
        )
        for sigma in sigmas
    }
    rest = max(abs(found.mean) for sigma, found in gaps.items() if sigma < 2)
    by_sgd = {"optimizer": "sgd", "learning_rate": causal.config["fields"]["sgd_rate"]}
    others = max(
        abs(float((knob_claims.of(runs["lst-optimizer"], [sigma], **by_sgd) - again).mean()))
        for sigma, again in (
            (each, causal_effects.of(causal, "learned, by SGD", [each])) for each in sigmas if each < 2
        )
    )
    usual = {"lst-heads": {"heads": 1}, "lst-depth": {"layers": 4}, "lst-width": {"width": 160}}
    usual |= {"lst-placement": {"placement": "every"}, "lst-data": {"data": "puzzles=8100"}}
    same = [
        [list(knob_claims.of(runs[name], [sigma], **columns)) for sigma in sigmas] for name, columns in usual.items()
    ]
    return say(
        all(each == same[0] for each in same),
        "**Mind rounding.** Members of the same settings and seeds in two runs were stacked with other neighbours on a "
        "GPU and differ by rounding, which training magnifies. The learned PEs of `lst-causal` and the models of one "
        f"head of `lst-heads` are such: at sigma 2 their means over 5 seeds differ by {gaps[2.0].mean:+.2f} "
        f"({gaps[2.0].low:+.2f} to {gaps[2.0].high:+.2f}), below that by at most {rest:.2f}; the models that "
        f"`lst-optimizer` and `lst-causal` trained by SGD differ by at most {others:.2f} up to sigma 1. Differences of "
        "that size between two runs say nothing. The intervals hold this noise, as seeds differ by it too. In "
        "`lst-heads`, `lst-depth`, `lst-width`, `lst-placement` and `lst-data`, on the other hand, the models of the "
        "usual setting are the very same: what sigma is worth there is one result, not five.",
    )


def draw() -> None:
    """The figures that the page shows."""
    for name, answer in ANSWERS.items():
        run = Run(ROOT / "results" / name)
        for shown in page_of(study_of(run), run).figures():
            if shown.name in answer.figures:
                figures.save(shown.figure, ROOT / "docs" / "images" / f"{PREFIX}-{name}-{shown.name}.png")


if __name__ == "__main__":
    (ROOT / "docs" / "beyond.md").write_text(page())
    draw()

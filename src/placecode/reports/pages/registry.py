"""Find the page of an experiment: the class that says which figures, sentences and tables its report shows.

>>> page = page_of(experiment, run)
>>> page.summary(), page.figures()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from typing import ClassVar

from placecode.errors import INSTALL
from placecode.experiments.base import Experiment
from placecode.experiments.channels import own_results
from placecode.experiments.channels.brain import BrainExperiment, BrainPreprocessing, BrainSigma, BrainTransfer
from placecode.experiments.channels.masked import MaskedExperiment
from placecode.experiments.channels.own import OwnData
from placecode.experiments.channels.pixels import NEXT_TO, PixelsExperiment
from placecode.experiments.latin.causal import LstCausal
from placecode.experiments.latin.knobs import KnobExperiment
from placecode.experiments.latin.squares import LatinExperiment, LstEncodings, LstSigma
from placecode.experiments.latin.training import LstFrozen, LstSlingshot
from placecode.reports.pages import (
    brain_networks,
    latin_figures,
    latin_words,
    masked_figures,
    masked_words,
    own_figures,
    own_words,
    pixel_figures,
)
from placecode.reports.pages.base import Page, ReportFigure, run_name
from placecode.reports.pages.causal import CausalPage
from placecode.reports.pages.interactive import ChannelMap, Listing, SigmaSlider, Verdict
from placecode.reports.pages.knobs import KnobPage, SweptPage
from placecode.reports.pages.training import FrozenPage, SlingshotPage
from placecode.runs.read import Run
from placecode.tasks.brain import DEFAULT_PARTITIONS

LATIN_MEASURES = (
    ("norm", ""),
    ("moved_relative", "start"),
    ("procrustes_raw", "2d-fixed"),
    ("procrustes", "2d-fixed"),
    ("rsa", "2d-fixed"),
    ("neighbor_agreement", "relation"),
    ("attention_cosine", "2d-fixed"),
)
"""The (analysis, target) pairs in the table of measures of lst-sigma and lst-encodings."""


class SigmaPage(Page):
    """The page of lst-sigma."""

    measures = LATIN_MEASURES

    def figures(self) -> list[ReportFigure]:
        return latin_figures.of_sigmas(self.run)

    def words(self) -> list[str]:
        return latin_words.of_sigmas(self.run)


class EncodingsPage(Page):
    """The page of lst-encodings."""

    measures = LATIN_MEASURES

    def figures(self) -> list[ReportFigure]:
        return latin_figures.of_encodings(self.run)

    def words(self) -> list[str]:
        return latin_words.of_encodings(self.run)


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

    def figures(self) -> list[ReportFigure]:
        return masked_figures.of_run(self.run)

    def words(self) -> list[str]:
        return masked_words.of_settings(self.run)

    def summary(self) -> list[str]:
        return masked_words.in_short(self.run)

    def verdicts(self) -> list[Verdict]:
        return masked_words.verdicts(self.run)


class PixelsPage(MaskedPage):
    """The page of experiments on shuffled pixels, which adds the maps drawn as pictures."""

    measures = (
        NEXT_TO,
        ("procrustes_r2", "positions"),
        ("coordinate_agreement", "positions"),
        ("fc_correlation", "fc"),
        ("moved_relative", "start"),
        ("stability", "other seeds"),
    )

    def figures(self) -> list[ReportFigure]:
        return [*super().figures(), *pixel_figures.as_pictures(self.run)]


class BrainPage(MaskedPage):
    """The page of experiments on human fMRI."""

    measures = (
        ("mirror_agreement", "partner"),
        ("coordinate_agreement", "positions"),
        ("modularity", "best"),
        *((measure, target) for target in DEFAULT_PARTITIONS for measure in ("modularity", "segregation")),
        ("fc_correlation", "fc"),
        ("moved_relative", "start"),
        ("stability", "other seeds"),
    )

    def words(self) -> list[str]:
        lines = super().words()
        if find_spec("nilearn") is None:
            lines.append(f"The regions are not drawn on a brain because nilearn is not installed: {INSTALL}.")
        return lines


class BrainSigmaPage(BrainPage):
    """The page of brain-sigma, which adds known networks of the brain."""

    def figures(self) -> list[ReportFigure]:
        first, *others = super().figures()
        return [first, *brain_networks.over_sigma(self.run), *others]

    def words(self) -> list[str]:
        return [*super().words(), *brain_networks.sentences_on_networks(self.run)]


class BrainPreprocessingPage(BrainPage):
    """The page of brain-preprocessing, which adds the same measures for each variant of the preprocessing."""

    def figures(self) -> list[ReportFigure]:
        return [*brain_networks.over_variants(self.run), *super().figures()]

    def words(self) -> list[str]:
        return [*brain_networks.sentences_on_variants(self.run), *super().words()]

    def summary(self) -> list[str]:
        return brain_networks.sentences_on_variants(self.run) or super().summary()


class BrainTransferPage(BrainPage):
    """The page of brain-transfer."""

    measures = (
        ("mirror_agreement", "partner"),
        ("fc_correlation", "fc"),
        ("moved_relative", "start"),
        ("stability", "other seeds"),
        ("stability", "other data"),
    )


class FitPage(Page):
    """The page of `placecode fit` on a user's table."""

    measures = (("moved_relative", "start"), ("stability", "other seeds"), ("stability", "other data"))
    map_first = True

    @cached_property
    def fit(self) -> own_results.Found:
        """The result of the fit, read from the folder of the run."""
        return own_results.read(self.run.path)

    def figures(self) -> list[ReportFigure]:
        return own_figures.of_fit(self.fit, run_name(self.run))

    def words(self) -> list[str]:
        return own_words.sentences(self.fit)

    def summary(self) -> list[str]:
        return own_words.in_short(self.fit)

    def verdicts(self) -> list[Verdict]:
        return [own_words.verdict(self.fit)]

    def slider(self) -> SigmaSlider | None:
        slider = super().slider()
        if slider is None:
            return None
        first = next((i for i, position in enumerate(slider.positions) if position.sigma == self.fit.sigma), 0)
        return replace(slider, **own_figures.sorting(self.fit), first=first)

    def channels(self) -> ChannelMap | None:
        return own_figures.channels(self.fit)

    def listings(self) -> list[Listing]:
        return own_figures.listings(self.fit)


PAGES: dict[type[Experiment], type[Page]] = {
    LstSigma: SigmaPage,
    LstEncodings: EncodingsPage,
    KnobExperiment: KnobPage,
    LstCausal: CausalPage,
    LstFrozen: FrozenPage,
    LstSlingshot: SlingshotPage,
    MaskedExperiment: MaskedPage,
    PixelsExperiment: PixelsPage,
    BrainExperiment: BrainPage,
    BrainSigma: BrainSigmaPage,
    BrainPreprocessing: BrainPreprocessingPage,
    BrainTransfer: BrainTransferPage,
    OwnData: FitPage,
}
"""The page of each experiment. An experiment that is not listed has the page of its nearest base class."""


def page_of(experiment: Experiment, run: Run) -> Page:
    """Return the page of a run of this experiment; `SweptPage` if `--sweep` was used on Latin squares."""
    if experiment.sweep and isinstance(experiment, LatinExperiment):
        return SweptPage(experiment, run)
    return next(PAGES[kind] for kind in type(experiment).__mro__ if kind in PAGES)(experiment, run)

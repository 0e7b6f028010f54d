"""Find the page of an experiment: the class that says which figures, sentences and tables its report shows.

>>> page = page_of(experiment, run)
>>> page.lead(), page.figures()
"""

from __future__ import annotations

from placecode.experiments.base import Experiment
from placecode.experiments.channels.brain import BrainExperiment, BrainPreprocessing, BrainSigma, BrainTransfer
from placecode.experiments.channels.masked import MaskedExperiment
from placecode.experiments.channels.pixels import PixelsExperiment
from placecode.experiments.channels.table import TableExperiment
from placecode.experiments.latin.causal import LstCausal
from placecode.experiments.latin.knobs import KnobExperiment
from placecode.experiments.latin.squares import LatinExperiment, LstEncodings, LstSigma
from placecode.experiments.latin.training import LstFrozen, LstSlingshot
from placecode.reports.pages.base import Page
from placecode.reports.pages.brain import BrainPage, BrainPreprocessingPage, BrainSigmaPage, BrainTransferPage
from placecode.reports.pages.causal import CausalPage
from placecode.reports.pages.fit import FitPage
from placecode.reports.pages.knobs import KnobPage, SweptPage
from placecode.reports.pages.latin import EncodingsPage, SigmaPage
from placecode.reports.pages.masked import MaskedPage
from placecode.reports.pages.pixels import PixelsPage
from placecode.reports.pages.training import FrozenPage, SlingshotPage
from placecode.runs.read import Run

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
    TableExperiment: FitPage,
}
"""The page of each experiment. An experiment that is not listed has the page of its nearest base class."""


def page_of(experiment: Experiment, run: Run) -> Page:
    """Return the page of a run of this experiment; `SweptPage` if `--sweep` was used on Latin squares."""
    if experiment.sweep and isinstance(experiment, LatinExperiment):
        return SweptPage(experiment, run)
    return next(PAGES[kind] for kind in type(experiment).__mro__ if kind in PAGES)(experiment, run)

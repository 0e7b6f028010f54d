"""Studies by name: the registry."""

from __future__ import annotations

from placecode.errors import one_of
from placecode.studies.base import SCALES, Shown, Study
from placecode.studies.latin_squares import LstEncodings, LstSigma

__all__ = ["SCALES", "STUDIES", "Shown", "Study", "lookup"]

STUDIES: dict[str, type[Study]] = {study.name: study for study in (LstSigma, LstEncodings)}


def lookup(name: str) -> type[Study]:
    """The study behind a name."""
    if name not in STUDIES:
        raise one_of("study", STUDIES, name)
    return STUDIES[name]

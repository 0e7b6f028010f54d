"""placecode: learned positional encodings, trained, measured and compared.

>>> from placecode import Run, encodings
>>> pe = encodings.make("learned", tokens=16, width=160, sigma=0.2)     # an encoding to use in any model
>>> model = Run("runs/demo").load(0)                                    # the first trained model of a run
>>> fitted = LearnedPositions().fit(X)                                  # a map of the channels (columns) of a table
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from placecode import encodings
from placecode.errors import BadInput
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.tasks.latin_squares import LatinSquares
from placecode.training.trainer import Trainer
from placecode.version import VERSION as __version__

if TYPE_CHECKING:
    from placecode.fit.estimator import LearnedPositions
    from placecode.runs.read import Run

__all__ = [
    "BadInput",
    "LatinSquares",
    "LearnedPositions",
    "Member",
    "Run",
    "Stack",
    "Trainer",
    "__version__",
    "encodings",
    "grid",
]

LAZY_IMPORTS = {"LearnedPositions": "placecode.fit.estimator", "Run": "placecode.runs.read"}
"""Public names that are imported at first use, with their modules. They need pandas and scikit-learn, which load
slowly."""


def __getattr__(name: str) -> Any:
    if name in LAZY_IMPORTS:
        return getattr(import_module(LAZY_IMPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

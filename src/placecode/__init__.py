"""placecode: learn where tokens live.

>>> from placecode import Run, encodings
>>> pe = encodings.make("learned", tokens=16, width=160, sigma=0.2)     # a drop-in for any model
>>> model = Run("runs/demo").load(0)                                    # a trained member of a run
>>> fitted = LearnedPositions().fit(X)                                  # a map of the channels of a table
"""

from typing import Any

from placecode import encodings
from placecode.encoder import Stack
from placecode.errors import BadInput
from placecode.members import Member, grid
from placecode.runs import Run
from placecode.tasks.latin_squares import LatinSquares
from placecode.training import Trainer
from placecode.version import VERSION as __version__

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


def __getattr__(name: str) -> Any:
    """The estimator is imported when it is asked for: scikit-learn takes a second, and most of placecode needs none."""
    if name == "LearnedPositions":
        from placecode.estimator import LearnedPositions

        return LearnedPositions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Bad input that must be refused."""

from collections.abc import Callable
from typing import Any

import pytest

from placecode.errors import BadInput


def refused(action: Callable[..., object], /, *positional: Any, **options: Any) -> BadInput:
    """Return the error of an action that must be refused with these arguments."""
    with pytest.raises(BadInput) as error:
        action(*positional, **options)
    return error.value


def sentence(action: Callable[..., object], /, *positional: Any, **options: Any) -> str:
    """Return the message of an action that must be refused: a sentence on one line."""
    message = str(refused(action, *positional, **options))
    assert message.endswith((".", "?")) and "\n" not in message
    return message

"""Tasks: what models learn. A task has data, a loss, metrics, and the true positions of its tokens if they are known.

| module | task |
|---|---|
| `latin_squares` | predict a cell of a Latin square puzzle |
| `network`, `synergy`, `brain`, `pixels`, `table` | predict hidden channels from visible ones; base class in `masked` |
| `collection` | several tasks in one experiment, for example with different noise |

To make a new task, write a subclass of `Task` (in `base`) in a module of this folder. It sets the attributes `name`,
`readout`, `outputs` and `splits`, and implements `loss`, `metrics` and `describe` (see `Task`). `examples/extend.py`
does this in 30 lines, and runs an experiment with the task. A task must not import models.

The other modules have functions for these tasks: `splits` and `columns` for `table`, `people` for `brain`, and
`simulated` for `network`, `synergy` and `pixels`.
"""

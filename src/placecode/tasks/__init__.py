"""Tasks: what models learn. A task has data, a loss, metrics, and the true positions of its tokens if they are known.

| module | task |
|---|---|
| `latin_squares` | predict a cell of a Latin square puzzle |
| `network`, `synergy`, `brain`, `pixels`, `table` | predict hidden channels from visible ones; `masked` is their base |
| `collection` | several tasks in one experiment, for example with different noise |

To make a new task, write a subclass of `Task` (in `base`) in a module of this folder. It sets `name`, `readout`,
`outputs` and `splits`, and implements `loss`, `metrics` and `describe`. `examples/extend.py` does this in 30 lines, and
runs an experiment with the task. A task must not import models.

The modules `splits` and `columns` belong to `table`, and `people` belongs to `brain`. `simulated` has what `network`,
`synergy` and `pixels` share.
"""

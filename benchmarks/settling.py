"""Do parameters stop changing once the training loss is exactly 0? Prints, epoch by epoch, how many still do.

    python benchmarks/settling.py --puzzles DIR --device cuda --epochs 800 --out settling.csv

Trains the paper's model on Latin squares with the authors' loss, 4 seeds of 3 sigmas. For some epochs and every
member: the share of its parameters that differ from those an epoch before; the largest change of one; the mean
training loss; accuracy on held-out puzzles. `--quick` takes small models, for a CPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from placecode.execution.where import Where
from placecode.models.member import Member, grid
from placecode.tasks.latin_squares import LatinSquares
from placecode.training.trainer import Trainer, stack_for, steps_per_epoch

EVERY = 50
"""Epochs between rows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--puzzles", help="folder with the published puzzles; drawn when not given")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--epochs", type=int, default=800)
    parser.add_argument("--quick", action="store_true", help="small models and few puzzles, for a CPU")
    parser.add_argument("--out", type=Path, help="CSV file")
    given = parser.parse_args()
    small = {"width": 16, "layers": 1, "expansion": 2, "batch": 32, "learning_rate": 3e-3} if given.quick else {}
    task = LatinSquares(puzzles=given.puzzles, per_class=100 if given.quick else 3000)
    members = grid(Member(**small), sigma=(0.2, 1.0, 2.0), seed=range(4))
    where = Where(given.device).resolved()
    with where.arithmetic():
        table = pd.DataFrame(rows(members, task, where.device, given.epochs))
    print(table.groupby(["epoch", "sigma"])[["changed", "largest_change", "loss", "accuracy"]].mean().to_string())
    if given.out is not None:
        table.to_csv(given.out, index=False)


def rows(members: list[Member], task: LatinSquares, device: str, epochs: int) -> list[dict[str, float]]:
    """A row for every member and every 50th epoch."""
    steps = epochs * steps_per_epoch(len(task.splits["train"]), members[0].batch)
    trainer = Trainer(stack_for(members, task, device), task, steps)
    found: list[dict[str, float]] = []
    for epoch in range(1, epochs + 1):
        trainer.sync()
        before = trainer.stack.flat.clone() if epoch % EVERY == 0 else None
        for _ in range(trainer.steps_per_epoch):
            trainer.update()
        if before is None:
            continue
        measured = [row for row in trainer.evaluate() if row["condition"] == "all"]  # brings the stack up to date
        right = [row["value"] for row in measured if (row["split"], row["metric"]) == ("ood", "accuracy")]
        losses = [row["value"] for row in measured if (row["split"], row["metric"]) == ("train", "loss")]
        change = trainer.stack.flat - before
        for place, member in enumerate(members):
            found.append(
                {
                    "epoch": epoch,
                    "sigma": member.sigma or 0.0,
                    "seed": member.seed,
                    "changed": float((change[place] != 0).float().mean()),
                    "largest_change": float(change[place].abs().max()),
                    "loss": losses[place],
                    "accuracy": right[place],
                }
            )
    return found


if __name__ == "__main__":
    main()

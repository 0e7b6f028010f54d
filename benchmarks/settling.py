"""Do parameters stop changing when the training loss is exactly 0? Print how many still change, every 50 epochs.

    python benchmarks/settling.py --puzzles DIR --device cuda --epochs 800 --out settling.csv

Trains the paper's model on Latin squares with the authors' loss, 4 seeds of 3 sigmas (PE in every block, post-norm).
The columns are the share of parameters that changed over one epoch, the largest change, the mean training loss and the
OOD accuracy. `--quick` uses small models, for a CPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from placecode.execution.settings import ExecutionSettings
from placecode.models.member import Member, grid
from placecode.tasks.latin_squares import LatinSquares
from placecode.training.trainer import Trainer, stack_for, steps_per_epoch

EVERY = 50
"""Number of epochs between rows of the table."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--puzzles", help="folder with the published puzzles; generated if not given")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--epochs", type=int, default=800)
    parser.add_argument("--quick", action="store_true", help="small models and few puzzles, for a CPU")
    parser.add_argument("--out", type=Path, help="CSV file")
    args = parser.parse_args()
    small = {"width": 16, "layers": 1, "expansion": 2, "batch": 32, "learning_rate": 3e-3} if args.quick else {}
    task = LatinSquares(puzzles=args.puzzles, per_class=100 if args.quick else 3000)
    members = grid(Member(**small), sigma=(0.2, 1.0, 2.0), seed=range(4))
    execution = ExecutionSettings(args.device)
    with execution.arithmetic():
        table = pd.DataFrame(rows(members, task, execution.device, args.epochs))
    print(table.groupby(["epoch", "sigma"])[["changed", "largest_change", "loss", "accuracy"]].mean().to_string())
    if args.out is not None:
        table.to_csv(args.out, index=False)


def rows(members: list[Member], task: LatinSquares, device: str, epochs: int) -> list[dict[str, float]]:
    """Train the members, and return one row per member for every 50th epoch."""
    steps = epochs * steps_per_epoch(len(task.splits["train"]), members[0].batch)
    trainer = Trainer(stack_for(members, task, device), task, steps)
    table: list[dict[str, float]] = []
    for epoch in range(1, epochs + 1):
        trainer.sync()
        before = trainer.stack.flat.clone() if epoch % EVERY == 0 else None
        for _ in range(trainer.steps_per_epoch):
            trainer.update()
        if before is None:
            continue
        measured = [row for row in trainer.evaluate() if row["condition"] == "all"]  # also synchronizes the stack
        accuracies = [row["value"] for row in measured if (row["split"], row["metric"]) == ("ood", "accuracy")]
        losses = [row["value"] for row in measured if (row["split"], row["metric"]) == ("train", "loss")]
        change = trainer.stack.flat - before
        for i, member in enumerate(members):
            table.append(
                {
                    "epoch": epoch,
                    "sigma": member.sigma or 0.0,
                    "seed": member.seed,
                    "changed": float((change[i] != 0).float().mean()),
                    "largest_change": float(change[i].abs().max()),
                    "loss": losses[i],
                    "accuracy": accuracies[i],
                }
            )
    return table


if __name__ == "__main__":
    main()

"""Writes docs/performance.md and its figures from the committed tables: python benchmarks/performance.py

No number on that page is typed. They come from results/bench/*.json (each the bench.json of `placecode bench --out DIR`
on one machine) and from two runs of the same members in two precisions. A test compares the page with the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from placecode import figures as drawing
from placecode import files
from placecode.analysis.stats import interval
from placecode.bench import disturbance, disturbed, figures, times_placecode
from placecode.bench.profiling import KINDS, REST, kind_of
from placecode.runs import Run
from placecode.studies.reading import final_accuracy, swept

ROOT = Path(__file__).parents[1]
IN_TF32 = "lst-sigma-tf32"
OTHERS = {"high": "lst-sigma-200", "bf16": "lst-sigma-bf16", "TF32 again": "lst-sigma-tf32-again"}
"""Runs of the same seeds that are held against it: the last one has other roundings alone."""

Row = dict[str, Any]
Key = tuple[float, int]
"""A sigma and a seed."""

WORDS = """\
# How fast

<!-- made by benchmarks/performance.py from the tables in results/; edit that file, not this one -->

Training many small models is what placecode does all day. What it does to be quick:

**Everywhere.** Members of equal shape are one stack: every product of a step is one batched product for all of them.
The last block computes only the token that is read, and from the tokens themselves: with a single query, neither keys
nor values are formed. With a single head, Q K' and V W are formed once per step instead of queries, keys, values and
outputs for every token, which leaves out half of attention's products (the result is the same; FLOPs below are those
of the model as written, so that all rows count alike).

**On a GPU.** The whole step (rows of the batch, forward, backward, optimizer, all members) is one CUDA graph; the
number of the step and the order of the examples live on the device, so nothing waits for the host. Products are the
library's, save those of attention. Between two of them there is one Triton kernel: residual, bias, GELU, norm and PE in
one pass, forth and back; attention over short sequences in one; nothing is transposed; gradients of weights are
written where the optimizer reads them; the optimizer is one pass for the norms and one for the rest. Attention over
more than 64 tokens walks in tiles and never stores a score.

In precision high, products take float16 numbers and give float32. Float16 has the ten bits of TF32, in half the bytes,
and GPUs multiply it faster; its range is smaller, but after a norm numbers are of order 1, and gradients are brought to
that order by a power of two for each member and step, which the optimizer undoes (`docs/architecture.md` says more, and
for which members TF32 is taken instead). Tests hold its errors against those of TF32. In tf32 the same products take
TF32; in highest, float32; in bf16, activations are bf16 too, while norms, softmax, sums and weights are float32.

**On a CPU.** Forward and backward are written out for a few members at a time, in arrays that stay in the caches; what
lies between products is compiled once by g++, where there is one. Stacks train side by side, a core each.

**What did not pay**, on an H200 at the paper's size: products in Triton that do the GELU before the result is written,
with the weights kept on chip or not (slower than the library's product and a pass of its own); the whole MLP in one
kernel, in float16 (forth as slow as its three passes, back a quarter slower); gradients of weights on a second stream
(no change: every kernel fills the GPU); small stacks, so that arrays stay in the L2 cache (slower); the foldings of all
blocks' attention in one kernel (slower than the library's many small products).

A GPU that is kept busy so runs at its power limit, not at its top clock: an H200 at 700 W and 1.4 to 1.7 GHz instead of
2. So a long run is some per cent slower than a round of a second, and times differ between two GPUs of one kind.

Each row below was measured in a fresh process, after a warm-up, as the median of five rounds (on a CPU in three
processes, of which the fastest counts: where the system puts threads can make a process slow for good). The peers did
the same work in the same run: a test checks that they get from the same weights to the same losses.
`benchmarks/README.md` says what each of them is, what the numbers mean, and how to measure again.
"""


def page(root: Path = ROOT) -> str:
    """The whole page, from the tables below `root`."""
    parts = [WORDS]
    found = tables(root)
    for name, result in found.items():
        parts += section(name, result)
    if not found:
        parts.append("Not measured yet.\n")
    return "\n".join([*parts, *precision_section(root)])


def tables(root: Path) -> dict[str, Any]:
    """The committed benchmarks by name, those of GPUs first."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted((root / "results" / "bench").glob("*.json"))}
    return dict(sorted(found.items(), key=lambda item: item[1]["environment"]["device"] != "cuda"))


def section(name: str, result: dict[str, Any]) -> Iterator[str]:
    """One machine."""
    about = result["environment"]
    yield f"## On {figures.place(about)}\n"
    made = f"placecode {about['placecode']}" + (f" ({about['git']})" if about["git"] else "")
    on = f"torch {about['packages']['torch']}, Python {about['python']}"
    cores = f"{about['threads']} threads on {about['cores']} cores"
    yield f"{made}, {on}; {cores}. Table: `results/bench/{name}.json`.\n"
    if said := disturbance(result):
        yield f"{said}\n"
    drawn = figures.draw(result)
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["case"] == case]
        yield f"### {case}\n"
        yield sizes(rows[0])
        yield from ceilings([row for row in result["ceilings"] if row["case"] == case])
        yield table(rows)
        yield from ratios(rows)
        ours = [row for row in rows if row["name"] == "placecode" and row["us_per_model_step"] is not None]
        yield from growth([row for row in ours if not disturbed(row)])
        yield from profile([row for row in result.get("kernels", []) if row["case"] == case])
        for kind in ("time", "memory", "peers"):
            if (file := figures.file_name(case, kind)) in drawn:
                yield f"![{case}: {kind}](images/bench-{name}-{file}.png)\n"


def sizes(row: Row) -> str:
    heads = f"{row['heads']} head" + ("s" if row["heads"] > 1 else "")
    words = f"Width {row['width']}, {row['tokens']} tokens, {row['layers']} blocks, {heads}, batch {row['batch']}"
    work = f"A step of one model takes {row['flops'] / 1e9:.3g} GFLOP of matrix products"
    return f"{words}. {work}; a model is {row['steps_per_model']:,} steps.\n"


def ceilings(found: Sequence[Row]) -> Iterator[str]:
    told = [row for row in found if row["tflops"] is not None]
    each = [
        f"{row['tflops']:.3g} TFLOP/s in {row['precision']} (at best {row['floor_us']:,.0f} us)"
        + (" \\*" if disturbed(row) else "")
        for row in told
    ]
    if each:
        what = (
            f"The products of its linear layers alone, as it is written, `torch.bmm` over {told[0]['members']} models"
        )
        yield f"{what}: {', '.join(each)}. placecode leaves some of them out, so it can be above that ceiling.\n"


def table(rows: Sequence[Row]) -> str:
    """All rows of a case."""
    heads = ("", "precision", "models at once", "us per model and step", "models per hour", "TFLOP/s", "of ceiling")
    lines = [line((*heads, "peak MiB", "times placecode")), line(["---"] * 9)]
    for row in rows:
        cells = (
            form(row["us_per_model_step"], ",.0f"),
            form(row["models_per_hour"], ",.0f" if (row["models_per_hour"] or 0) >= 100 else ".3g"),
            form(row["tflops"], ".3g"),
            form(row["share_of_ceiling"], ".0%"),
            form(None if row["peak_bytes"] is None else row["peak_bytes"] / 2**20, ",.0f"),
            form(times_placecode(row, rows), ".3g"),
        )
        name = row["name"] + (" \\*" if disturbed(row) else "") + (f" ({row['note']})" if row["note"] else "")
        lines.append(line((name, row["precision"], row["members"], *cells)))
    return "\n".join(lines) + "\n"


def ratios(rows: Sequence[Row]) -> Iterator[str]:
    """How placecode stands to the loops, in sentences."""
    for precision in dict.fromkeys(row["precision"] for row in rows if row["name"] == "placecode"):
        here = {
            (row["name"], row["members"]): row["us_per_model_step"]
            for row in rows
            if row["precision"] == precision and row["us_per_model_step"] is not None and not disturbed(row)
        }
        ours = {members: time for (name, members), time in here.items() if name == "placecode"}
        loops = {name: time for (name, _), time in here.items() if name in ("loop-eager", "loop-compiled")}
        if not ours or not loops:
            continue
        best = min(ours, key=ours.__getitem__)
        words = [f"{time / ours[best]:.3g} times as fast as {name}" for name, time in loops.items()]
        said = f"In {precision}, {best} models at once are {' and '.join(words)}"
        if 1 in ours and "loop-compiled" in loops:
            said += f"; a stack of one takes {ours[1] / loops['loop-compiled']:.2f} of the compiled loop's time"
        yield f"{said}.\n"


def growth(ours: Sequence[Row]) -> Iterator[str]:
    """How time and memory grow where the members double."""
    lines = []
    for row in ours:
        half = [r for r in ours if r["precision"] == row["precision"] and 2 * r["members"] == row["members"]]
        if half:
            time = 2 * row["us_per_model_step"] / half[0]["us_per_model_step"]
            told = row["peak_bytes"] is not None and half[0]["peak_bytes"]
            memory = form(row["peak_bytes"] / half[0]["peak_bytes"] if told else None, ".2f")
            each = form(row["peak_bytes"] / row["members"] / 2**20 if told else None, ",.1f")
            lines.append(line((row["precision"], row["members"], f"{time:.2f}", memory, each)))
    if lines:
        yield "How a step grows where the members double (2 is in proportion):\n"
        heads = ("precision", "members", "time, times that of half", "memory, times that of half", "MiB per member")
        yield "\n".join([line(heads), line(["---"] * 5), *lines]) + "\n"


def profile(kernels: Sequence[Row]) -> Iterator[str]:
    """Where the time of a step goes: the kernels of each precision by what they are for."""
    for precision in dict.fromkeys(row["precision"] for row in kernels):
        rows = [row for row in kernels if row["precision"] == precision]
        total = sum(row["us_per_model_step"] for row in rows)
        times = dict.fromkeys((*KINDS, REST), 0.0)
        launched = dict.fromkeys(times, 0.0)
        for row in rows:
            times[kind_of(row["kernel"])] += row["us_per_model_step"]
            launched[kind_of(row["kernel"])] += row["calls"]
        yield (
            f"Where the time of a step goes in {precision}, {rows[0]['members']} models at once, by torch's profiler: "
            f"{total:.1f} us for each in {sum(launched.values()):.0f} kernels.\n"
        )
        lines = [line(("", "kernels", "us per model and step", "share")), line(["---"] * 4)]
        for kind in sorted(times, key=lambda kind: -times[kind]):
            if times[kind] > 0:
                lines.append(line((kind, f"{launched[kind]:.0f}", f"{times[kind]:.1f}", f"{times[kind] / total:.0%}")))
        yield "\n".join(lines) + "\n"


def precision_section(root: Path) -> Iterator[str]:
    """Whether another precision changes what is learned: the same seeds in both, pair by pair."""
    yield "## Does the precision change what is learned?\n"
    yield (
        "The same members were trained in several precisions; below is validation accuracy, and the difference of each "
        "seed to itself with the 95% t interval of its mean. The yardstick is the last table: TF32 twice, by "
        "kernels that round in another order. Where training is chaotic, that alone moves a seed; and of twenty such "
        "intervals one or so leaves out zero by chance.\n"
    )
    for label, name in OTHERS.items():
        yield f"### {label} against TF32\n"
        folders = [root / "results" / each for each in (IN_TF32, name)]
        if not all((folder / "config.json").is_file() for folder in folders):
            yield "Not measured yet.\n"
            continue
        runs = [Run(folder) for folder in folders]
        epochs = runs[0].config["fields"]["epochs"]
        yield f"`results/{name}` and `results/{IN_TF32}`, {epochs} epochs.\n"
        yield "\n".join(compared(*(validation(run) for run in runs), label)) + "\n"


def compared(tf32: dict[Key, float], other: dict[Key, float], label: str) -> list[str]:
    """A table of both, sigma by sigma."""
    lines = [line(("sigma", "seeds", "TF32", label, f"{label} less TF32", "95% interval")), line(["---"] * 6)]
    for sigma in sorted({key[0] for key in tf32.keys() & other.keys()}):
        pairs = [(tf32[key], other[key]) for key in sorted(tf32) if key in other and key[0] == sigma]
        mean, low, high = interval([after - before for before, after in pairs])
        means = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
        bounds = f"{low:+.3f} to {high:+.3f}" if low == low else "-"
        lines.append(line((f"{sigma:g}", len(pairs), *(f"{value:.3f}" for value in means), f"{mean:+.3f}", bounds)))
    return lines


def validation(run: Run) -> dict[Key, float]:
    """Final validation accuracy of the sweep by sigma and seed."""
    rows = final_accuracy(run, swept(run))
    rows = rows[rows["split"] == "validation"]
    return {(float(s), int(n)): float(v) for s, n, v in zip(rows["sigma"], rows["seed"], rows["value"], strict=True)}


def form(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)


def line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    files.write_text(ROOT / "docs" / "performance.md", page())
    images = ROOT / "docs" / "images"
    for old in images.glob("bench-*.png"):
        old.unlink()
    for name, result in tables(ROOT).items():
        for kind, figure in figures.draw(result).items():
            drawing.save(figure, images / f"bench-{name}-{kind}.png")


if __name__ == "__main__":
    main()

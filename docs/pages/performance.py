"""Writes docs/performance.md and its figures from the committed tables: python docs/pages/performance.py

No result on that page is typed. Results come from results/bench/*.json (one file per machine, which benchmarks/merge.py
makes from the bench.json of one or more calls of `placecode bench --out DIR`) and from runs of the same members in
several precisions. A test compares the page with the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from placecode import files
from placecode.analysis.stats import interval
from placecode.bench import compared_with, disturbance, disturbed, figures, times_memory, times_placecode
from placecode.bench.compare import baseline
from placecode.bench.peers import STACKED
from placecode.bench.profiling import KINDS, REST, kind_of
from placecode.experiments.reading import final_accuracy, swept
from placecode.reports import figures as drawing
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]
IN_TF32 = "lst-sigma-tf32"
OTHERS = {"high": "lst-sigma-200", "bf16": "lst-sigma-bf16", "TF32 again": "lst-sigma-tf32-again"}
"""Runs of the same seeds that are held against it: the last one has other roundings alone."""

Row = dict[str, Any]
Key = tuple[float, int]
"""A sigma and a seed."""

TITLE = """\
# How fast

<!-- made by docs/pages/performance.py from the tables in results/; edit that file, not this one -->
"""

WORDS = """\
## What makes it fast

**Everywhere.** Members of equal shape form one stack: each matrix product of a step is one batched product for all of
them. The last block computes only the token that is read. It has a single query, so it needs neither keys nor values.
With a single head, Q K' and V W are computed once per step instead of queries, keys, values and outputs for every
token. This leaves out half of attention's products and gives the same result. The FLOPs below are those of the model as
written, so that all rows count the same work.

**On a GPU.** The whole step (rows of the batch, forward, backward, optimizer, all members) is one CUDA graph. The step
count and the order of the examples live on the device, so the GPU never waits for the host. Matrix products come from
the library, except those of attention. Between two products there is one Triton kernel, which does residual, bias,
GELU, norm and PE in one pass, in the forward and in the backward pass. Attention over short sequences is one kernel.
Nothing is transposed. Gradients of weights are written where the optimizer reads them. The optimizer takes one pass for
the norms and one for the rest. Attention over more than 64 tokens works in tiles and never stores the scores.

In precision high, products take float16 numbers and give float32. Float16 has as many mantissa bits as TF32 (ten) in
half the bytes, and GPUs multiply it faster. Its range is smaller. Activations after a norm are of order 1, and
gradients are scaled to that order by a power of two for each member and step, which the optimizer undoes.
`docs/architecture.md` says more, and for which members TF32 is used instead. Tests compare its errors with those of
TF32. In tf32 the same products use TF32; in highest, float32. In bf16 activations are bf16 too, while norms, softmax,
sums and weights are float32.

**On a CPU.** Forward and backward are written out for a few members at a time, in arrays that stay in the caches. The
operations between products are compiled once by g++, where it is installed. Stacks train in parallel, one per core.

**What did not help**, on an H200 at the paper's size:

- Triton products with the GELU built in, with or without the weights kept on chip: slower than the library's product
  followed by a pass of its own.
- The whole MLP in one kernel, in float16: as slow as its three passes in the forward pass, a quarter slower in the
  backward pass.
- Gradients of weights on a second stream: no change, since every kernel fills the GPU.
- Small stacks, so that arrays stay in the L2 cache: slower.
- One kernel that folds the attention weights of all blocks: slower than the library's many small products.

A GPU under this load runs at its power limit, not at its top clock: an H200 at 700 W and 1.4 to 1.7 GHz instead of 2.
A long run is therefore a few percent slower than a round of a second, and two GPUs of one kind differ.

## How it is measured

Each row below was measured in a fresh process, after a warm-up, as the median of five rounds. On a CPU three processes
measure each row and the fastest counts, because the system can place threads so that a process stays slow.

There are two kinds of peers. Stacked peers (vmap, compiled-vmap, jax-vmap) train many models at once, as placecode
does. They are compared with placecode at the same number of models. Loops train one model at a time, so their time per
model does not depend on the number of models. They are compared with placecode at its fastest. The last column of each
table says with which row of placecode a row is compared. Rows are only compared within one call of
`placecode bench`. Tests check that every peer reaches the same losses from the same weights.
`benchmarks/README.md` describes the peers and the numbers, and how to measure again.
"""

STRONGEST, LEADING_CASE = "compiled-vmap", "lst-paper"
"""The peer that an expert would write, and the case in which the page leads with it."""


def page(root: Path = ROOT) -> str:
    """The whole page, from the tables below `root`."""
    found = tables(root)
    parts = [TITLE, *lead(found), WORDS]
    for name, result in found.items():
        parts += section(name, result)
    if not found:
        parts.append("Not measured yet.\n")
    return "\n".join([*parts, *precision_section(root)])


def lead(found: dict[str, Any]) -> Iterator[str]:
    """placecode beside the strongest peer at equal numbers of models, on the first GPU where that was measured."""
    yield (
        "placecode trains many small models at once. The fair comparison is with what an expert would write in PyTorch "
        "for this: the gradient of one model, mapped over stacked weights by `torch.func.vmap` and compiled by "
        "`torch.compile`, with a fused Adam, and the whole step captured as one CUDA graph. This page calls it "
        f"{STRONGEST}.\n"
    )
    for result in found.values():
        everything = [row for row in result["rows"] if row["case"] == LEADING_CASE and row["device"] == "cuda"]
        peers = [row for row in everything if row["name"] == STRONGEST and times_placecode(row, everything) is not None]
        if peers:
            yield from lead_of(peers, everything, figures.place(result["environment"]))
            return
    if found:
        yield f"{STRONGEST} has not been measured on a GPU yet.\n"


def lead_of(peers: Sequence[Row], rows: Sequence[Row], place: str) -> Iterator[str]:
    """The ratios at the most models that were measured in every precision, then a table of all."""
    precisions = list(dict.fromkeys(row["precision"] for row in peers))
    counts = sorted({row["members"] for row in peers}, key=lambda count: (in_precisions(peers, count), count))
    chosen = [row for row in peers if row["members"] == counts[-1]]
    times = [f"{times_placecode(row, rows):.2f} in {row['precision']}" for row in chosen]
    ratios = [(times_memory(row, rows), row["precision"]) for row in chosen]
    memory = [f"{ratio:.2f} in {precision}" for ratio, precision in ratios if ratio is not None]
    yield f"On {place}, with {counts[-1]} models of the paper's size at once:\n"
    lines = [f"- **Time** per model and step of {STRONGEST}, divided by placecode's: {listed(times)}."]
    if memory:
        lines.append(f"- **Peak memory** of {STRONGEST}, divided by placecode's: {listed(memory)}.")
    yield "\n".join(lines) + "\n"
    heads = ("precision", "models at once", "placecode, us per model and step", f"{STRONGEST}, us", "ratio of times")
    lines = [line((*heads, "placecode, peak MiB", f"{STRONGEST}, peak MiB", "ratio of memory")), line(["---"] * 8)]
    for row in sorted(peers, key=lambda row: (-row["members"], precisions.index(row["precision"]))):
        ours = baseline(row, rows)
        assert ours is not None
        cells = [form(each["us_per_model_step"], ",.0f") for each in (ours, row)]
        cells += [form(times_placecode(row, rows), ".2f"), mebibytes(ours), mebibytes(row)]
        lines.append(line((row["precision"], row["members"], *cells, form(times_memory(row, rows), ".2f"))))
    yield "\n".join(lines) + "\n"
    for note in dict.fromkeys(row["note"] for row in peers if row["note"]):
        yield f"{STRONGEST}: {note}\n"
    yield (
        f"In high and tf32, {STRONGEST} multiplies in TF32. placecode does so in tf32; in high it multiplies float16 "
        f"numbers, which have as many mantissa bits. In bf16, {STRONGEST} uses autocast.\n"
    )


def in_precisions(rows: Sequence[Row], count: int) -> int:
    """In how many precisions a number of models was measured."""
    return len({row["precision"] for row in rows if row["members"] == count})


def tables(root: Path) -> dict[str, Any]:
    """The committed benchmarks by name, those of GPUs first."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted((root / "results" / "bench").glob("*.json"))}
    return dict(sorted(found.items(), key=lambda item: item[1]["environment"]["device"] != "cuda"))


def section(name: str, result: dict[str, Any]) -> Iterator[str]:
    """One machine."""
    yield f"## On {figures.place(result['environment'])}\n"
    calls = result.get("calls", [])
    if len(calls) < 2:
        yield f"{versions(result['environment'])}. Table: `results/bench/{name}.json`.\n"
    else:
        yield f"Measured in {len(calls)} calls of `placecode bench`. Table: `results/bench/{name}.json`.\n"
        yield "\n".join(call_line(call, result["rows"]) for call in calls) + "\n"
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


def versions(about: dict[str, Any]) -> str:
    """What was measured with which versions, in a few words."""
    made = f"placecode {about['placecode']}" + (f" ({about['git']})" if about["git"] else "")
    on = f"torch {about['packages']['torch']}, Python {about['python']}"
    return f"{made}, {on}; {about['threads']} threads on {about['cores']} cores"


def call_line(call: dict[str, Any], rows: Sequence[Row]) -> str:
    """What one call measured, and when."""
    measured: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["call"] == call["call"]:
            measured.setdefault(row["case"], {})[row["precision"]] = None
    what = "; ".join(f"{case} in {listed(list(precisions))}" for case, precisions in measured.items())
    return f"- {what}: {versions(call['environment'])}; time of the call: {call['call']}."


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
        what = f"on the products of its linear layers, over {told[0]['members']} models"
        left_out = "placecode leaves some of these products out, so it can exceed the ceiling"
        yield f"The ceiling is what `torch.bmm` reaches {what}: {', '.join(each)}. {left_out}.\n"


def table(rows: Sequence[Row]) -> str:
    """All rows of a case."""
    heads = ("", "precision", "models at once", "us per model and step", "models per hour", "TFLOP/s", "of ceiling")
    lines = [line((*heads, "peak MiB", "times placecode", "compared with placecode at")), line(["---"] * 10)]
    for row in rows:
        cells = (
            form(row["us_per_model_step"], ",.0f"),
            form(row["models_per_hour"], ",.0f" if (row["models_per_hour"] or 0) >= 100 else ".3g"),
            form(row["tflops"], ".3g"),
            form(row["share_of_ceiling"], ".0%"),
            mebibytes(row),
            form(times_placecode(row, rows), ".3g"),
            compared_with(row, rows),
        )
        name = row["name"] + (" \\*" if disturbed(row) else "") + (f" ({row['note']})" if row["note"] else "")
        lines.append(line((name, row["precision"], row["members"], *cells)))
    return "\n".join(lines) + "\n"


def ratios(rows: Sequence[Row]) -> Iterator[str]:
    """How placecode compares with stacked peers and with loops, in sentences."""
    rows = [row for row in rows if not disturbed(row)]
    for precision in dict.fromkeys(row["precision"] for row in rows if row["name"] == "placecode"):
        here = [row for row in rows if row["precision"] == precision and times_placecode(row, rows) is not None]
        stacked = [row for row in here if row["name"] in STACKED]
        for count in sorted({row["members"] for row in stacked}, reverse=True)[:1]:
            times = [
                f"{row['name']} takes {times_placecode(row, rows):.3g} times as long as placecode"
                for row in stacked
                if row["members"] == count
            ]
            yield f"In {precision}, with {count} models at once, {listed(times)}.\n"
        loops = [row for row in here if row["name"] in ("loop-eager", "loop-compiled")]
        if not loops:
            continue
        best = baseline(loops[0], rows)
        assert best is not None
        times = [f"{times_placecode(row, rows):.3g} times as fast as {row['name']}" for row in loops]
        sentence = f"In {precision}, placecode with {best['members']} models at once is {listed(times)}"
        alone = [row for row in here if row["name"] == "placecode" and row["members"] == 1]
        compiled = [row for row in loops if row["name"] == "loop-compiled"]
        if alone and compiled:
            share = alone[0]["us_per_model_step"] / compiled[0]["us_per_model_step"]
            sentence += f"; with a single model it takes {share:.2f} of the compiled loop's time"
        yield f"{sentence}.\n"


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
        yield "How time and memory of a step grow when the number of members doubles (2 is proportional):\n"
        heads = (
            "precision",
            "members",
            "time, divided by that of half",
            "memory, divided by that of half",
            "MiB per member",
        )
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
            f"Where the time of a step goes in {precision} with {rows[0]['members']} models at once, by torch's "
            f"profiler: {total:.1f} us per model in {sum(launched.values()):.0f} kernels.\n"
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
        "The same members were trained in several precisions. The tables show validation accuracy and the mean "
        "difference between two runs of the same seed, with its 95% t interval. The last table is the reference: TF32 "
        "twice, by kernels that round in a different order. Training is chaotic, so rounding alone changes the result "
        "of a seed. About one in twenty such intervals excludes zero by chance.\n"
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
    lines = [line(("sigma", "seeds", "TF32", label, f"{label} minus TF32", "95% interval")), line(["---"] * 6)]
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


def mebibytes(row: Row) -> str:
    """The peak memory of a row."""
    return form(None if row["peak_bytes"] is None else row["peak_bytes"] / 2**20, ",.0f")


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence: "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


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

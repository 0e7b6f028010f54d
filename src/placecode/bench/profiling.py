"""Profile a training step of placecode on a GPU: measure the time of each kernel, and group kernels by purpose.

>>> kind_of("nvjet_tss_192x128_64x3"), kind_of("_norm_backward"), kind_of("_update")
('products', 'norms', 'optimizer')
"""

from __future__ import annotations

from typing import Any

import torch.profiler

from placecode.bench.measure import WARM_UP, Job, Placecode

STEPS = 8
"""Number of profiled steps."""
KINDS = {
    "products": ("gemm", "nvjet", "cutlass", "xmma", "cublas", "gemv", "splitk"),
    "attention": (
        "_forward",
        "_backward",
        "_backward_queries",
        "_backward_keys",
        "_to_fp16",
        "_gradient_to_fp16",
        "_select",
        "_select_backward",
    ),
    "norms": ("_norm", "_norm_backward", "_shift_rows", "_drop"),
    "GELU of the MLP": ("_activate", "_activate_backward"),
    "sums of gradients": ("_sum_pieces",),
    "embedding": ("_embed", "_embed_backward"),
    "optimizer": ("_squares", "_update"),
}
"""Names of kernels by purpose. For "products", which libraries compute, a part of the name suffices."""
REST = "the rest"
"""Purpose of all other kernels, which are small ones of torch: indexing the batch, the loss, its gradient, copies."""


def kind_of(kernel: str) -> str:
    """Return the purpose of a kernel with this name: a key of KINDS, or REST."""
    for kind, names in KINDS.items():
        is_library = kind == "products"
        if any(name in kernel.lower() for name in names) if is_library else kernel in names:
            return kind
    return REST


def profile(job: Job) -> dict[str, Any]:
    """Profile training steps of placecode on a GPU; return {"kernels": rows}, with the slowest kernels first.

    A row has the kind and name of a kernel, its calls per step, and its microseconds per model and step.
    """
    candidate = Placecode(job)
    candidate.run(WARM_UP[job.device])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        candidate.run(STEPS)
    about = {"case": job.case.name, "device": job.device, "precision": job.precision, "members": job.members}
    rows = [
        {
            **about,
            "kind": kind_of(event.key),
            "kernel": event.key,
            "calls": event.count / STEPS,
            "us_per_model_step": event.self_device_time_total / STEPS / job.members,
        }
        for event in profiler.key_averages()
        if event.self_device_time_total > 0
    ]
    return {"kernels": sorted(rows, key=lambda row: -row["us_per_model_step"])}

"""Profile a training step of placecode on a GPU: measure the time of each kernel, and assign kernels to groups.

>>> kernel_group("nvjet_tss_192x128_64x3"), kernel_group("_norm_backward"), kernel_group("_update")
('products', 'norms', 'optimizer')
"""

from __future__ import annotations

from typing import Any

import torch.profiler

from placecode.bench.measure import WARM_UP, Job, Placecode

STEPS = 8
"""Number of profiled steps."""
KERNEL_GROUPS = {
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
"""Names of kernels by group. For "products", these are parts of names, because libraries choose the full names."""
FORMER_KERNEL_NAMES = {"_halve": "_to_fp16", "_halve_gradient": "_gradient_to_fp16"}
"""Names of kernels in the results of earlier benchmarks, mapped to their current names."""
OTHER_KERNELS = "the rest"
"""Group of all other kernels, which are small kernels of torch: indexing, the loss and its gradient, copies."""


def kernel_group(kernel: str) -> str:
    """Return the group of a kernel with this name: a key of KERNEL_GROUPS, or OTHER_KERNELS."""
    kernel = FORMER_KERNEL_NAMES.get(kernel, kernel)
    for group, names in KERNEL_GROUPS.items():
        is_library = group == "products"
        if any(name in kernel.lower() for name in names) if is_library else kernel in names:
            return group
    return OTHER_KERNELS


def profile(job: Job) -> dict[str, Any]:
    """Profile training steps of placecode on a GPU; return {"kernels": rows}, with the slowest kernels first.

    A row has the group ("kind") and name of a kernel, its calls per step, and its microseconds per model and step.
    """
    candidate = Placecode(job)
    candidate.run(WARM_UP[job.device])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        candidate.run(STEPS)
    about = {"case": job.case.name, "device": job.device, "precision": job.precision, "members": job.members}
    rows = [
        {
            **about,
            "kind": kernel_group(event.key),
            "kernel": event.key,
            "calls": event.count / STEPS,
            "us_per_model_step": event.self_device_time_total / STEPS / job.members,
        }
        for event in profiler.key_averages()
        if event.self_device_time_total > 0
    ]
    return {"kernels": sorted(rows, key=lambda row: -row["us_per_model_step"])}

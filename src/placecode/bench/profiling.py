"""Where the time of a step goes on a GPU: kernel by kernel, and by what they are for.

>>> kind_of("nvjet_tss_192x128_64x3"), kind_of("_norm_backward"), kind_of("_update")
('products', 'norms', 'optimizer')
"""

from __future__ import annotations

from typing import Any

from placecode.bench.measure import WARM_UP, Job, Placecode

STEPS = 8
"""Steps that are recorded."""
KINDS = {
    "products": ("gemm", "nvjet", "cutlass", "xmma", "cublas", "gemv", "splitk"),
    "attention": ("_forward", "_backward", "_backward_queries", "_backward_keys", "_halve", "_halve_gradient"),
    "norms": ("_norm", "_norm_backward", "_shift_rows", "_drop"),
    "GELU of the MLP": ("_activate", "_activate_backward"),
    "sums of gradients": ("_sum_pieces",),
    "embedding": ("_embed", "_embed_backward"),
    "optimizer": ("_squares", "_update"),
}
"""What kernels are for: those of the library by a part of their names, our own by their whole names."""
REST = "the rest"
"""Small kernels of torch: the rows of the batch, the loss and its gradient, copies."""


def kind_of(kernel: str) -> str:
    """What a kernel is for."""
    for kind, names in KINDS.items():
        library = kind == "products"
        if any(name in kernel.lower() for name in names) if library else kernel in names:
            return kind
    return REST


def profile(job: Job) -> dict[str, Any]:
    """The kernels of placecode's step, those that take longest first: {"kernels": [...]}."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recording

    contestant = Placecode(job)
    contestant.run(WARM_UP[job.device])
    with recording(activities=[ProfilerActivity.CUDA]) as recorded:
        contestant.run(STEPS)
    about = {"case": job.case.name, "device": job.device, "precision": job.precision, "members": job.members}
    rows = [
        {
            **about,
            "kind": kind_of(event.key),
            "kernel": event.key,
            "calls": event.count / STEPS,
            "us_per_model_step": event.self_device_time_total / STEPS / job.members,
        }
        for event in recorded.key_averages()
        if event.self_device_time_total > 0
    ]
    return {"kernels": sorted(rows, key=lambda row: -row["us_per_model_step"])}

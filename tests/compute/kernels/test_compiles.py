"""The kernels compile for a GPU, without one. The interpreter accepts code that the compiler would reject."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("triton", reason="the kernels need Triton")

SCRIPT = """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile
    import torch
    from placecode.compute.gpu.kernels import attention, long_attention, mlp, relative, rows, updates

    VECTORS = {
        "table", "lse", "delta", "means", "saved", "q_bias", "k_bias", "v_bias", "dq_bias", "dk_bias", "dv_bias",
        "bias", "shift", "pe", "mean", "inverse", "sums", "d_pe", "w", "lift", "d_table",
    }
    ARRAYS = {"q", "k", "v", "g", "x", "y", "u", "grad", "out", "dq", "dk", "dv", "out_fp16", "d_total", "d_branch"}
    ARRAYS |= {"products"}

    def check(kernel, products, kind, float16=("out_fp16",), num_warps=8, num_stages=2, **constants):
        constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
        types, of_attention = {}, kernel.__module__.endswith(("attention", "tiles", "relative"))
        for name in kernel.arg_names:
            vector = name in VECTORS or name.endswith("units") or (name == "scale" and not of_attention)
            numbers = "fp32" if name in ("scale", "log2_e", "factor", "epsilon") else "i32"
            vector = vector and not (of_attention and name == "sums")  # there, `sums` is a number
            array = "*fp16" if name in float16 else "*" + kind
            types[name] = "*fp32" if vector else array if name in ARRAYS else numbers
            types[name] = "*i32" if name == "index" else types[name]
            types[name] = "constexpr" if name in constants else types[name]
        compiled = compile(
            ASTSource(kernel, types, constexprs=constants), target=GPUTarget("cuda", 90, 32),
            options={"num_warps": num_warps, "num_stages": num_stages},
        )
        assert compiled.metadata.shared <= 99 * 1024, (kernel.__name__, compiled.metadata.shared)  # what any GPU has
        assert (("mma" in compiled.asm["ptx"]) == products), kernel.__name__

    tiles = long_attention
    kernels = {"forward": tiles._forward, "queries": tiles._backward_queries, "keys": tiles._backward_keys}
    for name, kernel in kernels.items():
        shared = dict(TOKENS_PER_UNIT=tiles.TOKENS_PER_UNIT, PRECISION="tf32", RESIDUAL=True)
        for c in (64, 128):
            sizes = {**tiles._launch(name, c, torch.float16), "C": c, **shared}
            float16 = ("q", "k", "v", "g")
            check(kernel, True, "fp32", float16, FP16=True, TABLE=c == 128, BIASES=1, SHARED=False, **sizes)
            check(kernel, True, "bf16", FP16=False, TABLE=True, BIASES=3, SHARED=c == 128, **sizes)
            sizes = {**tiles._launch(name, c, torch.float32), "C": c, **shared}
            check(kernel, True, "fp32", (), FP16=False, TABLE=True, BIASES=3, SHARED=c == 128, **sizes)
        exact = {**sizes, "C": 64 if name == "queries" else 16, "PRECISION": "ieee"}  # larger ones take long
        check(kernel, False, "fp32", FP16=False, TABLE=True, BIASES=3, SHARED=False, **exact)
    check(tiles._to_fp16, False, "fp32", ("out",), BIAS=True, TOKENS=tiles.TOKENS_PER_UNIT, C=64)
    check(tiles._to_fp16, False, "fp32", ("x", "out"), BIAS=False, TOKENS=tiles.TOKENS_PER_UNIT, C=64)
    for fp16 in (True, False):
        check(tiles._gradient_to_fp16, False, "fp32", FP16=fp16, TOKENS=tiles.TOKENS_PER_UNIT, C=64)
    for kernel in (attention._forward, attention._backward):
        for kind in ("fp32", "bf16"):
            for keep in (True, False):
                sizes = dict(M=16, N=16, C=32, PRECISION="tf32")
                flags = dict(TABLE=keep, KEEP=keep, SHARED=keep, RESIDUAL=not keep, D_TABLE=keep)
                check(kernel, True, kind, BIASES=1, **flags, **sizes)
        flags = dict(TABLE=False, KEEP=True, SHARED=False, RESIDUAL=True, D_TABLE=False)
        check(kernel, True, "fp32", ("k", "dq", "dv"), BIASES=1, **flags, **sizes)
    for kind in ("fp32", "bf16"):
        tile = dict(M=16, N=16, num_warps=2)
        check(relative._select, False, kind, TABLE=True, **tile)
        check(relative._select_backward, False, kind, ("out",), COLUMNS=32, **tile)
        for fp16 in (True, False):
            float16 = ("out_fp16", "d_branch", "out") if fp16 else ()
            sizes = dict(ROWS=2, WIDTH=256, STAGES=3, num_warps=1)
            check(rows._norm, False, kind, ("out_fp16",), GELU=fp16, PE=fp16, FP16=fp16, **sizes)
            check(rows._norm_backward, False, kind, float16, GELU=not fp16, PE=fp16, BRANCH=True, **sizes)
            check(rows._embed, False, kind, ("out_fp16",), PE=fp16, FP16=fp16, **sizes)
            tile = dict(ROWS=16, COLS=128, STAGES=3, num_warps=4)
            check(mlp._activate, False, kind, float16, **tile)
            check(mlp._activate_backward, False, kind, float16, **tile)
    kernel = updates._update
    for kind, decay, pe_decay in (("adam", True, False), ("adamw", False, True), ("sgd", True, True)):
        constants = dict(KIND=kind, FACTOR=True, DECAY=decay, PE_DECAY=pe_decay, BLOCK=updates.BLOCK)
        others = {"size": "i32", "pe_first": "i32", **dict.fromkeys(constants, "constexpr")}
        types = {name: others.get(name, "*fp32") for name in kernel.arg_names}
        compile(ASTSource(kernel, types, constexprs=constants), target=GPUTarget("cuda", 90, 32))
"""


def test_kernels_compile_and_fit() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SCRIPT)],
        env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]

"""Kernels are grouped by purpose, and every kernel of placecode has a purpose."""

import ast
from pathlib import Path

import pytest
import torch

from placecode.bench import profiling
from placecode.bench.cases import CASES
from placecode.bench.measure import Job
from placecode.bench.plan import Plan
from placecode.bench.profiling import KERNEL_GROUPS, OTHER_KERNELS, kernel_group, profile

KERNELS = Path(profiling.__file__).parents[1] / "compute" / "gpu" / "kernels"


def launched() -> set[str]:
    """The names of all kernels that are launched: `_name[grid](...)`."""
    result = set()
    for path in KERNELS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                assert isinstance(node.func.value, ast.Name)
                result.add(node.func.value.id)
    return result


def test_every_kernel_of_ours_has_its_kind_and_no_other_is_named() -> None:
    assert launched() == {name for kind, names in KERNEL_GROUPS.items() if kind != "products" for name in names}


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>", "products"),
        ("nvjet_tss_192x128_64x3", "products"),
        ("std::enable_if<true, void>::type internal::gemvx::kernel<int>", "products"),
        ("_backward_keys", "attention"),
        ("_halve", "attention"),  # a former name
        ("_norm", "norms"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", OTHER_KERNELS),
        ("Memcpy DtoD (Device -> Device)", OTHER_KERNELS),
    ],
)
def test_kernels_of_libraries_have_their_kind(kernel, kind) -> None:
    assert kernel_group(kernel) == kind


def test_placecode_alone_is_profiled() -> None:
    """Each case and precision is profiled once, if possible with at most as many models as the ceiling."""
    plan = Plan("cuda", cases=(CASES["lst-paper"], CASES["tokens-100"]), precisions=("high", "bf16"))
    result = [(job.name, job.case.name, job.precision, job.members) for job in plan.profiling_jobs()]
    cases = (("lst-paper", 128), ("tokens-100", 64))
    assert result == [("placecode", case, which, count) for case, count in cases for which in ("high", "bf16")]
    for counts, expected in (((512, 256), 512), ((256, 64, 8), 64)):
        plan = Plan("cuda", cases=(CASES["lst-paper"],), precisions=("high",), members=counts)
        assert [job.members for job in plan.profiling_jobs()] == [expected]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")
def test_a_profile_finds_all_that_is_launched() -> None:
    rows = profile(Job(CASES["lst-quick"], "placecode", 4, "cuda", "high", 0.1))["kernels"]
    kinds = {row["kind"] for row in rows}
    assert {"products", "attention", "norms", "optimizer", "embedding", "GELU of the MLP"} <= kinds
    assert all(row["us_per_model_step"] > 0 and row["members"] == 4 for row in rows)

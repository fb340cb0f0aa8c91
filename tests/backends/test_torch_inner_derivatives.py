"""Functions that take derivatives inside by `torch.func`, whose tangents may be zeros that have no
memory: reading it ended the process.
"""

import pytest
from frameworks import torch
from scenarios import long

import adjudge
from adjudge import Verdict

pytest.importorskip("torch")
pytestmark = pytest.mark.backend("torch")


def product_with_a_hessian(x):
    def f(x):
        return (x**3).sum()

    return torch.func.jvp(torch.func.grad(f), (x,), (torch.ones_like(x),))[1]


def with_a_conversion(x):
    return torch.func.jvp(
        torch.func.grad(lambda x: (x.float() ** 4).sum()), (x,), (torch.ones_like(x),)
    )[1]


def zeros_without_memory(x):
    return torch._efficientzerotensor(x.shape, dtype=x.dtype) * x + x.sin()


@pytest.mark.parametrize(
    ("reference", "dtype"),
    [
        (None, torch.float32),
        (None, torch.float64),
        ("exact", torch.float64),
        long("exact", torch.float32),
    ],
)
@pytest.mark.parametrize("f", [product_with_a_hessian, with_a_conversion, zeros_without_memory])
def test_a_right_derivative_passes_and_a_wrong_one_fails(rule, f, reference, dtype):
    if reference:
        pytest.importorskip("flint")
    off = rule(lambda x: x.clone(), lambda x, w: 1.1 * w)
    options = {"reference": reference} if reference else {}
    x = torch.tensor([0.3, 0.7, 1.1], dtype=dtype, requires_grad=True)

    right = adjudge.examine(f, (x,), seed=0, blame=False, **options)
    wrong = adjudge.examine(lambda x: f(x) + off(x), (x,), seed=0, blame=False, **options)

    assert right.verdict is Verdict.PASS, str(right)
    assert wrong.verdict is Verdict.FAIL

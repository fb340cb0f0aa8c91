"""Kernels that take one narrow dtype alone: errors that f itself cannot show there, beside exact
gradients at many points.
"""

import numpy as np
import pytest
from scenarios import long, seeds, torch_function

torch = pytest.importorskip("torch")
pytest.importorskip("flint")

import adjudge  # noqa: E402
from adjudge import Verdict  # noqa: E402
from adjudge.estimate import exact  # noqa: E402

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
KERNELS = {
    "x sin x": (lambda x: x * torch.sin(x), lambda x: torch.sin(x) + x * torch.cos(x)),
    "atan": (torch.atan, lambda x: 1 / (1 + x * x)),
    "squares": (lambda x: (x * x).sum(), lambda x: 2 * x),
    "logsumexp": (lambda x: torch.logsumexp(x, 0), lambda x: torch.softmax(x, 0)),
    "clipped": (lambda x: torch.clamp(x, min=0.5) ** 2, lambda x: 2 * x * (x > 0.5)),
    "huber": (lambda x: torch.where(x < 1, x * x / 2, x - 0.5), lambda x: torch.clamp(x, max=1.0)),
}
"""Functions with their slopes; those of the last two compare numbers."""
ERRORS = {torch.float32: 1e-6, torch.bfloat16: 1e-2}


def kernel(f, slope, dtype, factor=1.0, entry=0):
    """`f` in one dtype, computed in float32 inside, whose gradient is off by a factor in an
    entry.
    """

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if x.dtype != dtype:
                raise TypeError(f"no kernel for {x.dtype}")
            ctx.save_for_backward(x)
            return f(x.float()).to(dtype)

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            gradient = w.float() * slope(x.float())
            gradient[entry] *= factor
            return gradient.to(dtype)

    return Kernel.apply


def numbers(count, seed, dtype):
    random = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(count, generator=random) + 0.2).to(dtype)


def each_in_turn():
    """Each kernel in one dtype, and with `--long` in the other and with more and fewer numbers."""
    both = (3, torch.bfloat16), (40, torch.float32)
    for k, name in enumerate(KERNELS):
        yield name, *both[k % 2]
        yield long(name, *both[1 - k % 2])
        yield long(name, 3, torch.float32)
        yield long(name, 40, torch.bfloat16)


@pytest.mark.parametrize(("name", "count", "dtype"), [*each_in_turn()], ids=str)
def test_an_error_that_the_values_hide_is_found_and_a_right_kernel_is_right(name, count, dtype):
    f, slope = KERNELS[name]
    seed = len(name) + count
    x, entry = numbers(count, seed, dtype), seed % count
    right = adjudge.examine(kernel(f, slope, dtype), x, seed=seed, blame=False)
    wrong = kernel(f, slope, dtype, 1 + ERRORS[dtype], entry)
    report = adjudge.examine(wrong, x, seed=seed, blame=False)

    assert right.verdict is not FAIL, str(right)
    hidden = name == "logsumexp" and count == 40 and dtype is torch.bfloat16
    # the rounding of the sum is a percent of an entry that is a fortieth of it
    assert report.verdict is FAIL or hidden, str(report)


@pytest.mark.parametrize("seed", seeds(10))
def test_sums_of_numbers_of_sixteen_bits_are_right_where_they_round_alike(seed):
    def average(x):
        if x.dtype != torch.bfloat16:
            raise TypeError("no kernel")
        return torch.nn.functional.avg_pool2d(x, 3, 1)

    x = numbers(64, seed, torch.bfloat16).reshape(1, 1, 8, 8)
    report = adjudge.examine(average, x, seed=seed, blame=False)
    assert report.verdict is not FAIL, str(report)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_saturated_kernel_is_not_wrong_for_what_rounding_takes(seed):
    def attend(q):
        if q.dtype != torch.float32:
            raise TypeError("no kernel")
        return torch.softmax(q @ (8 * keys.T), -1) @ values

    random = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(3, 2, generator=random), torch.randn(3, 2, generator=random)
    q = 4 * torch.randn(5, 2, generator=random)
    report = adjudge.examine(attend, q, seed=seed, blame=False)
    assert report.verdict is not FAIL, str(report)


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-6])
def test_points_at_which_a_kernel_raises_are_passed_over(factor):
    class Factor(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if x.dtype != torch.float32:
                raise TypeError("no kernel")
            ctx.save_for_backward(x)
            return torch.linalg.cholesky(x @ x.T - 0.1 * torch.eye(3))

        @staticmethod
        def backward(ctx, w):
            with torch.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                factors = torch.linalg.cholesky(x @ x.T - 0.1 * torch.eye(3))
            (gradient,) = torch.autograd.grad(factors, x, w)
            gradient[1, 0] *= factor
            return gradient

    x = torch.tensor([[1.0, 0.2, 0.1], [0.3, 0.9, 0.2], [0.1, 0.4, 0.8]])
    report = adjudge.examine(Factor.apply, x, seed=0, blame=False)
    assert report.verdict is (PASS if factor == 1 else FAIL), str(report)


def test_more_work_than_is_worth_it_is_left_to_differences(monkeypatch):
    f, slope = KERNELS["atan"]
    wrong, x = kernel(f, slope, torch.float32, 1 + 1e-6), numbers(20_000, 0, torch.float32)
    taken = []
    gradient = exact.Exact.gradient
    monkeypatch.setattr(exact.Exact, "gradient", lambda *given: taken.append(1) or gradient(*given))
    assert adjudge.examine(wrong, x, seed=0, blame=False).verdict is PASS
    assert not taken


@pytest.mark.parametrize("seed", seeds(10))
def test_the_input_whose_gradient_has_a_factor_is_named(seed):
    """That of the other one is a hundred times as large, and its rounding is the larger error."""

    def scaled(x, weight):
        if x.dtype != torch.bfloat16:
            raise TypeError("no kernel")
        return x * weight

    rule = torch_function(scaled, lambda x, weight, w: (1.05 * w * weight, w * x))
    x, weight = 10 * numbers(40, 0, torch.bfloat16), numbers(40, 1, torch.bfloat16) / 10
    report = adjudge.examine(rule, (x, weight), seed=seed, blame=False)
    assert report.verdict is FAIL, str(report)
    assert "inputs[0]" in report.findings[0].entry, str(report)


@pytest.mark.parametrize("seed", seeds(5))
def test_a_factor_is_weighed_by_what_rounding_makes_of_all_entries_together(seed):
    """The worst that rounding can do leaves no digit of any single one."""

    def norm(factor):
        class Norm(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                if x.dtype != torch.bfloat16:
                    raise TypeError("no kernel")
                centred = x - x.mean(-1, keepdim=True)
                rate = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
                ctx.save_for_backward(centred * rate, rate, weight)
                return centred * rate * weight

            @staticmethod
            def backward(ctx, w):
                y, rate, weight = ctx.saved_tensors
                g = w * weight
                along = (g * y).mean(-1, keepdim=True)
                return factor * rate * (g - g.mean(-1, keepdim=True) - y * along), (w * y).sum(0)

        return Norm.apply

    random = torch.Generator().manual_seed(0)
    x = (10 * torch.randn(8, 24, generator=random)).bfloat16()
    weight = (1 + 0.02 * torch.randn(24, generator=random)).bfloat16()
    right, wrong = (
        adjudge.examine(norm(factor), (x, weight), seed=seed, blame=False) for factor in (1.0, 1.05)
    )
    assert right.verdict is not FAIL, str(right)
    assert wrong.verdict is FAIL, str(wrong)
    assert "inputs[0]" in wrong.findings[0].entry, str(wrong)


@pytest.mark.parametrize("seed", [1, long(2)])
def test_what_fails_beside_differences_is_not_replayed_at_many_points(seed):
    """Each replay of a decomposition takes a third of a second, and nothing depends on them."""
    random = np.random.default_rng(3)
    u, v = (np.linalg.qr(random.normal(size=(5, 5)))[0] for _ in range(2))
    x = torch.tensor(u * np.geomspace(1, 1e-2, 5) @ v.T, dtype=torch.float32)

    class SingularValues(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if x.dtype != torch.float32:
                raise TypeError(f"no kernel for {x.dtype}")
            ctx.save_for_backward(x)
            return torch.linalg.svdvals(x)

        @staticmethod
        def backward(ctx, w):
            u, _, vt = torch.linalg.svd(ctx.saved_tensors[0])
            return (u * w) @ vt.T

    report = adjudge.examine(SingularValues.apply, x, seed=seed, blame=False)

    assert report.verdict is FAIL, str(report)
    assert report.counts["vjps"] < 150

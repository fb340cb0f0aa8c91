"""Exact identities and structure with the derivatives of PyTorch: planted errors, and operators."""

from contextlib import suppress

import pytest

from adjudge import Status, Verdict, examine

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch

pytestmark = pytest.mark.backend("torch")


def point(*shape, seed=0, dtype="float64"):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator, dtype=getattr(torch, dtype))
    return x.requires_grad_()


def positive(*shape, seed=0):
    return (point(*shape, seed=seed).detach().abs() + 0.5).requires_grad_()


def definite(n):
    x = point(n, n).detach()
    return (x @ x.T + torch.eye(n, dtype=x.dtype)).requires_grad_()


def statuses(report):
    return {finding.status for finding in report.findings if not finding.note}


# -- planted errors, each beside the right rule


@pytest.mark.parametrize(("letters", "factors"), [("R", (1, 1 + 1e-12)), ("F", (1 + 1e-12, 1))])
def test_a_linear_rule_is_checked_to_rounding(rule, letters, factors):
    forward, backward = factors

    def f(backward, forward):
        return rule(lambda x: 3 * x, lambda x, w: 3 * backward * w, lambda x, v: 3 * forward * v)

    wrong = examine(f(backward, forward), point(8), modes=list(letters), seed=1)

    assert statuses(wrong) == {Status.MISMATCH}
    assert "the function is affine there" in wrong.headline
    assert examine(f(1, 1), point(8), modes=["R", "F"], seed=1)


def test_modes_that_differ_by_1e_10_are_inconsistent(scaled_sin):
    wrong = examine(scaled_sin(jvp=1 + 1e-10), point(8), modes=["R", "F"], seed=1)

    assert statuses(wrong) == {Status.INCONSISTENT}
    assert examine(scaled_sin(), point(8), modes=["R", "F"], seed=1)


def test_a_double_backward_that_is_asymmetric_by_1e_9_is_inconsistent():
    def f(skew):
        class Backward(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return w * x.sum().cos() * torch.ones_like(x)

            @staticmethod
            def backward(ctx, u):
                x, w = ctx.saved_tensors
                second = -x.sum().sin() * u.sum() * torch.ones_like(x)
                return w * second + skew * w * x.sum().sin() * u.roll(1), x.sum().cos() * u.sum()

        class Sine(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.sum().sin()

            @staticmethod
            def backward(ctx, w):
                return Backward.apply(*ctx.saved_tensors, w)

        return Sine.apply

    wrong = examine(f(1e-9), point(6), modes=["RR"], seed=1)

    assert statuses(wrong) == {Status.INCONSISTENT}
    assert "is not symmetric in inputs[0]" in wrong.headline
    assert examine(f(0.0), point(6), modes=["RR"], seed=1)


def test_the_symmetrised_gradient_of_a_cholesky_factor_is_spurious():
    wrong = examine(torch.linalg.cholesky, definite(4), modes=["R"], seed=1)
    right = examine(
        lambda a: torch.linalg.cholesky(a.tril() + a.tril(-1).mT), definite(4), modes=["R"], seed=1
    )

    assert wrong.findings[0].status is Status.SPURIOUS
    assert "the strict upper triangle of inputs[0]: 6 of 16 entries" in wrong.headline
    assert "directions='symmetric'" in str(wrong)
    assert right


def test_a_leak_between_the_rows_of_a_batch_is_spurious(rule):
    def f(leak):
        return rule(torch.sin, lambda x, w: w * x.cos() + leak * w.mean(0))

    wrong = examine(f(1e-10), point(6, 3), modes=["R"], seed=1)

    assert statuses(wrong) == {Status.SPURIOUS}
    assert "leak into the gradient of inputs[0][" in wrong.headline
    assert examine(f(0.0), point(6, 3), modes=["R"], seed=1)


def test_a_batch_norm_whose_backward_forgets_the_batch_is_missing():
    def forgets(x):
        return x - x.mean(0).detach()

    report = examine(forgets, point(6, 3), modes=["R"], seed=1)

    assert Status.MISSING in statuses(report)
    assert examine(lambda x: x - x.mean(0), point(6, 3), modes=["R"], seed=1)


def test_what_the_engine_cannot_batch_is_a_note_unless_asked_for(rule):
    f = rule(torch.sin, lambda x, w: w * x.cos() + 0 * w.sum().item())

    noted = examine(f, point(5), modes=["R"], seed=1)
    asked = examine(f, point(5), modes=["R"], seed=1, check_batched_grad=True)

    assert noted
    assert [Status.RAISED] == [finding.status for finding in noted.findings if finding.note]
    assert asked.verdict is Verdict.FAIL


def test_a_vjp_that_is_wrong_under_vmap_alone_fails_without_being_asked_for():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            return Product.apply(w, x.cos())

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(w, c):
            return w * c

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, w, c):
            return 2 * w * c, 0

    report = examine(Wrong.apply, point(5), modes=["R"], seed=1)

    assert statuses(report) == {Status.INCONSISTENT}
    assert "the vmapped vjp for out is not the loop over the batch" in report.headline


# -- right functions


def functions():
    functional = torch.nn.functional
    A = point(6, 5, seed=9).detach()
    hilbert = 1 / (torch.arange(6.0, dtype=A.dtype)[:, None] + torch.arange(6.0) + 1)
    z = "complex128"
    return {
        "sin": (torch.sin, point(5, 4)),
        "exp": (torch.exp, point(7)),
        "tanh": (torch.tanh, point(5)),
        "lgamma": (torch.lgamma, positive(5)),
        "softmax": (lambda x: x.softmax(-1), point(4, 5)),
        "logsumexp": (lambda x: x.logsumexp(-1), point(4, 5)),
        "linear": (functional.linear, (point(4, 5), point(3, 5, seed=2), point(3, seed=3))),
        "constant matrix": (lambda x: A.to(x.dtype) @ x, point(5)),
        "conv2d": (functional.conv2d, (point(2, 3, 5, 5), point(4, 3, 3, 3, seed=1))),
        "avg_pool2d": (lambda x: functional.avg_pool2d(x, 2), point(2, 3, 4, 4)),
        "max_pool2d": (lambda x: functional.max_pool2d(x, 2), point(2, 3, 4, 4)),
        "batch_norm": (lambda x: functional.batch_norm(x, None, None, training=True), point(6, 4)),
        "layer_norm": (lambda x: functional.layer_norm(x, (5,)), point(4, 5)),
        "relu": (torch.relu, point(8)),
        "gelu": (functional.gelu, point(8)),
        "cholesky": (lambda a: torch.linalg.cholesky((a + a.mT) / 2), definite(4)),
        "eigvalsh": (lambda a: torch.linalg.eigvalsh((a + a.mT) / 2), definite(4)),
        "inv": (torch.linalg.inv, definite(4)),
        "slogdet": (lambda a: torch.linalg.slogdet(a)[1], definite(4)),
        "solve": (torch.linalg.solve, (definite(4), point(4, 2))),
        "solve, captured": (lambda b: torch.linalg.solve(hilbert.to(b.dtype), b), point(6)),
        "pinv, captured": (
            lambda b: torch.linalg.pinv(hilbert[:, :3].to(b.dtype)) @ b,
            point(6, 2),
        ),
        "fft": (torch.fft.fft, point(16)),
        "rfft": (torch.fft.rfft, point(15)),
        "irfft": (torch.fft.irfft, point(9, dtype=z)),
        "complex product": (torch.mul, (point(5, dtype=z), point(5, seed=1))),
        "complex matmul": (torch.matmul, (point(4, 5, dtype=z), point(5, 3, seed=2, dtype=z))),
        "abs of complex": (torch.abs, point(6, dtype=z)),
        "conj": (torch.conj_physical, point(5, dtype=z)),
        "cumsum": (lambda x: x.cumsum(0), point(500)),
        "sum": (torch.sum, point(3000)),
        "mean and a constant": (lambda x: x.mean() + 1e8, point(100)),
        "gather": (lambda x: x[[0, 0, 2]], point(5, 3)),
        "tril": (torch.tril, point(4, 4)),
        "sort": (lambda x: x.sort()[0], point(8)),
        "einsum": (lambda a, b: torch.einsum("ij,jk->k", a, b), (point(3, 4), point(4, 5, seed=1))),
        "attention": (
            functional.scaled_dot_product_attention,
            (point(2, 4, 3), point(2, 4, 3, seed=1), point(2, 4, 3, seed=2)),
        ),
        "atan2": (torch.atan2, (point(5), point(5, seed=1))),
    }


NAMES = [*functions()] if "torch" in globals() else []


def narrow(x):
    dtypes = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    return x.detach().to(dtypes[x.dtype]).requires_grad_()


@pytest.mark.parametrize("name", NAMES)
def test_a_right_function_is_no_false_alarm(name):
    f, x = functions()[name]

    report = examine(f, x, modes=["R", "F"], seed=3)
    second = examine(f, x, modes=["RR", "FR"], seed=3)

    assert set() == statuses(report) | statuses(second), f"{report}\n{second}"


@pytest.mark.parametrize("name", NAMES)
def test_a_right_function_in_single_precision_is_no_false_alarm(name):
    f, x = functions()[name]
    x = tuple(map(narrow, x)) if isinstance(x, tuple) else narrow(x)

    report = examine(f, x, modes=["R", "F"], seed=3)

    assert Verdict.FAIL is not report.verdict, str(report)

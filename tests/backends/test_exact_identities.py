"""Exact identities and structure with the engines' derivatives: planted errors, and operators."""

from contextlib import suppress

import numpy as np
import pytest
from scenarios import cells, on_both

from adjudge import Status, Verdict, examine

with suppress(ImportError):  # absent: every test of PyTorch is skipped
    import torch
with suppress(ImportError):  # absent: every test of JAX is skipped
    import jax
    import jax.numpy as jnp


def statuses(report):
    return {finding.status for finding in report.findings if not finding.note}


def real(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# ---------------------------------------------------------------- planted errors


@on_both
@pytest.mark.parametrize("letter", ["R", "F"])
def test_a_linear_rule_is_checked_to_rounding(adjudge_backend, letter, with_vjp, with_jvp):
    by_hand = with_vjp if letter == "R" else with_jvp
    x = adjudge_backend.array(real(8))

    right, wrong = (
        examine(
            by_hand(lambda x: 3 * x, lambda x, w, c=c: 3 * w * c),
            x,
            modes=[letter],
            seed=1,
            blame=False,
        )
        for c in (1, 1 + 1e-12)
    )

    assert right
    assert statuses(wrong) == {Status.MISMATCH}
    assert "the function is affine there" in wrong.headline


@on_both
def test_a_leak_between_the_rows_of_a_batch_is_spurious(adjudge_backend, with_vjp):
    xp = adjudge_backend.xp
    x = adjudge_backend.array(real(6, 3))

    right, wrong = (
        examine(
            with_vjp(xp.sin, lambda x, w, leak=leak: w * xp.cos(x) + leak * xp.mean(w, axis=0)),
            x,
            modes=["R"],
            seed=1,
            blame=False,
        )
        for leak in (0.0, 1e-10)
    )

    assert right
    assert statuses(wrong) == {Status.SPURIOUS}
    assert "leak into the gradient of inputs[0][" in wrong.headline


@on_both
def test_a_second_derivative_that_is_asymmetric_by_1e_9_is_inconsistent(
    adjudge_backend, with_vjp, second_by_hand
):
    xp = adjudge_backend.xp
    x = adjudge_backend.array(real(6))

    def sine(skew):
        gradient = second_by_hand(skew)
        return with_vjp(lambda x: xp.sin(xp.sum(x)), gradient)

    right, wrong = (
        examine(sine(skew), x, modes=["RR"], seed=1, blame=False) for skew in (0.0, 1e-9)
    )

    assert right
    assert statuses(wrong) == {Status.INCONSISTENT}
    assert "is not symmetric in inputs[0]" in wrong.headline


@pytest.fixture
def second_by_hand(adjudge_backend, with_vjp, with_jvp):
    """`second_by_hand(skew)`: the gradient of `sin(sum(x))`, whose derivative is asymmetric."""
    xp = adjudge_backend.xp

    def gradient(x, w):
        return w * xp.cos(xp.sum(x)) * xp.ones_like(x)

    def make(skew):
        def pull(x, w, u):
            second = -xp.sin(xp.sum(x)) * xp.sum(u) * xp.ones_like(x)
            return (
                w * second + skew * w * xp.sin(xp.sum(x)) * xp.roll(u, 1),
                xp.cos(xp.sum(x)) * xp.sum(u),
            )

        def push(x, w, dx, dw):
            s, c = xp.sin(xp.sum(x)), xp.cos(xp.sum(x))
            tilt = w * s * (xp.sum(dx) + skew * xp.roll(dx, 1))
            return dw * c * xp.ones_like(x) - tilt * xp.ones_like(x)

        # JAX differentiates a `custom_vjp` twice by forward mode, which such a rule has not got
        return (
            with_jvp(gradient, push) if adjudge_backend.name == "jax" else with_vjp(gradient, pull)
        )

    return make


@on_both
def test_a_batch_norm_whose_backward_forgets_the_batch_is_missing(adjudge_backend):
    stop = jax.lax.stop_gradient if adjudge_backend.name == "jax" else torch.Tensor.detach
    x = adjudge_backend.array(real(6, 3))

    right, wrong = (
        examine(lambda x, mean=mean: x - mean(x.mean(0)), x, modes=["R"], seed=1, blame=False)
        for mean in (lambda m: m, stop)
    )

    assert right
    assert Status.MISSING in statuses(wrong)


# ---------------------------------------------------------------- what PyTorch alone has


def tensor(values):
    return torch.tensor(values, requires_grad=True)


@pytest.mark.backend("torch")
def test_modes_that_differ_by_1e_10_are_inconsistent(scaled_sin):
    wrong = examine(
        scaled_sin(jvp=1 + 1e-10), tensor(real(8)), modes=["R", "F"], seed=1, blame=False
    )

    assert statuses(wrong) == {Status.INCONSISTENT}
    assert examine(scaled_sin(), tensor(real(8)), modes=["R", "F"], seed=1, blame=False)


@pytest.mark.backend("torch")
def test_the_symmetrised_gradient_of_a_cholesky_factor_is_spurious():
    wrong = examine(torch.linalg.cholesky, tensor(SPD), modes=["R"], seed=1, blame=False)
    right = examine(
        lambda a: torch.linalg.cholesky(a.tril() + a.tril(-1).mT),
        tensor(SPD),
        modes=["R"],
        seed=1,
        blame=False,
    )

    assert wrong.findings[0].status is Status.SPURIOUS
    assert "the strict upper triangle of inputs[0]: 6 of 16 entries" in wrong.headline
    assert "directions='symmetric'" in str(wrong)
    assert right


@pytest.mark.backend("torch")
def test_what_the_engine_cannot_batch_is_a_note_unless_asked_for(rule):
    f = rule(torch.sin, lambda x, w: w * x.cos() + 0 * w.sum().item())

    noted = examine(f, tensor(real(5)), modes=["R"], seed=1, blame=False)
    asked = examine(f, tensor(real(5)), modes=["R"], seed=1, check_batched_grad=True, blame=False)

    assert noted
    assert [Status.RAISED] == [finding.status for finding in noted.findings if finding.note]
    assert asked.verdict is Verdict.FAIL


@pytest.mark.backend("torch")
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

    report = examine(Wrong.apply, tensor(real(5)), modes=["R"], seed=1, blame=False)

    assert statuses(report) == {Status.INCONSISTENT}
    assert "the vmapped vjp for out is not the loop over the batch" in report.headline


# ---------------------------------------------------------------- right functions

SPD = real(4, 4) @ real(4, 4).T + np.eye(4)
HILBERT = 1 / (np.arange(6)[:, None] + np.arange(6) + 1)
COMPLEX = real(5) + 1j * real(5, seed=1)
POINTS = {
    "sin": (real(5, 4),),
    "exp": (real(7),),
    "tanh": (real(5),),
    "digamma": (np.abs(real(5)) + 0.5,),
    "softmax": (real(4, 5),),
    "logsumexp": (real(9),),
    "linear": (real(4, 5), real(3, 5, seed=2), real(3, seed=3)),
    "constant matrix": (real(5),),
    "conv2d": (real(2, 3, 5, 5), real(4, 3, 3, 3, seed=1)),
    "avg_pool2d": (real(2, 3, 4, 4),),
    "max_pool2d": (real(2, 3, 4, 4),),
    "batch norm": (real(6, 4),),
    "layer norm": (real(6, 3),),
    "relu": (real(8),),
    "gelu": (real(8),),
    "cholesky": (SPD,),
    "eigvalsh": (SPD,),
    "inv": (SPD,),
    "slogdet": (SPD,),
    "solve": (SPD, real(4, 2)),
    "solve, captured": (real(6),),
    # not at every point: a captured operator that loses digits in single precision alone is off by
    # the same everywhere, as a wrong constant is
    "pinv, captured": (real(6, 2, seed=1),),
    "fft": (COMPLEX,),
    "rfft": (real(15),),
    "irfft": (COMPLEX,),
    "complex product": (COMPLEX, real(5)),
    "complex matmul": (COMPLEX.reshape(1, 5), COMPLEX.reshape(5, 1)),
    "abs of complex": (COMPLEX,),
    "conj": (COMPLEX,),
    "cumsum": (real(500),),
    "sum": (real(3000),),
    "mean and a constant": (real(100),),
    "gather": (real(5, 3),),
    "tril": (real(4, 4),),
    "sort": (real(8),),
    "einsum": (real(3, 4), real(4, 5, seed=1)),
    "attention": (real(2, 4, 3), real(2, 4, 3, seed=1), real(2, 4, 3, seed=2)),
    "atan2": (real(5), real(5, seed=1)),
    "scan": (real(12),),
    "segment sum": (real(4, 2),),
}


def of_torch():
    functional = torch.nn.functional
    A, hilbert = torch.tensor(real(6, 5, seed=9)), torch.tensor(HILBERT)
    return {
        "sin": torch.sin,
        "exp": torch.exp,
        "tanh": torch.tanh,
        "digamma": torch.digamma,
        "softmax": lambda x: x.softmax(-1),
        "logsumexp": lambda x: x.logsumexp(-1),
        "linear": functional.linear,
        "constant matrix": lambda x: A.to(x.dtype) @ x,
        "conv2d": functional.conv2d,
        "avg_pool2d": lambda x: functional.avg_pool2d(x, 2),
        "max_pool2d": lambda x: functional.max_pool2d(x, 2),
        "batch norm": lambda x: functional.batch_norm(x, None, None, training=True),
        "layer norm": lambda x: functional.layer_norm(x, (3,)),
        "relu": torch.relu,
        "gelu": functional.gelu,
        "cholesky": lambda a: torch.linalg.cholesky((a + a.mT) / 2),
        "eigvalsh": lambda a: torch.linalg.eigvalsh((a + a.mT) / 2),
        "inv": torch.linalg.inv,
        "slogdet": lambda a: torch.linalg.slogdet(a)[1],
        "solve": torch.linalg.solve,
        "solve, captured": lambda b: torch.linalg.solve(hilbert.to(b.dtype), b),
        "pinv, captured": lambda b: torch.linalg.pinv(hilbert[:, :3].to(b.dtype)) @ b,
        "fft": torch.fft.fft,
        "rfft": torch.fft.rfft,
        "irfft": torch.fft.irfft,
        "complex product": torch.mul,
        "complex matmul": torch.matmul,
        "abs of complex": torch.abs,
        "conj": torch.conj_physical,
        "cumsum": lambda x: x.cumsum(0),
        "sum": torch.sum,
        "mean and a constant": lambda x: x.mean() + 1e8,
        "gather": lambda x: x[[0, 0, 2]],
        "tril": torch.tril,
        "sort": lambda x: x.sort()[0],
        "einsum": lambda a, b: torch.einsum("ij,jk->k", a, b),
        "attention": functional.scaled_dot_product_attention,
        "atan2": torch.atan2,
    }


def decayed(carry, x):
    """A step of a scan. JAX compiles anew for every function that it has not seen."""
    return carry * 0.9 + x, carry


def of_jax():
    """One operator of each kind whose rounding or whose rule is JAX's own: all of them are in
    benchmarks/gate.py.
    """
    A = real(6, 5, seed=9)
    return {
        "digamma": jax.scipy.special.digamma,
        "logsumexp": jax.scipy.special.logsumexp,
        "constant matrix": lambda x: A.astype(x.dtype) @ x,
        "eigvalsh": lambda a: jnp.linalg.eigvalsh((a + a.T) / 2),
        "solve, captured": lambda b: jnp.linalg.solve(HILBERT.astype(b.dtype), b),
        "irfft": jnp.fft.irfft,
        "abs of complex": jnp.abs,
        "sum": jnp.sum,
        "scan": lambda x: jax.lax.scan(decayed, 0 * x[0], x)[1],
        "segment sum": lambda x: jax.ops.segment_sum(x, np.asarray([0, 1, 1, 0])),
    }


FUNCTIONS = {
    name: make() for name, make in (("torch", of_torch), ("jax", of_jax)) if name in globals()
}
TORCH, JAX = (list(FUNCTIONS.get(engine, ())) for engine in ("torch", "jax"))
SECOND = {
    "torch": ("softmax", "constant matrix", "conv2d", "layer norm", "eigvalsh", "irfft", "sum"),
    "jax": ("digamma", "eigvalsh", "irfft"),
}
SINGLE = {
    "torch": ("digamma", "logsumexp", "linear", "conv2d", "layer norm", "cholesky", "eigvalsh",
              "solve, captured", "pinv, captured", "irfft", "cumsum", "sum", "mean and a constant",
              "attention"),
    "jax": ("logsumexp", "solve, captured"),
}  # fmt: skip
"""Kinds of rules, and what rounds differently in single precision; all of them are in the gate."""


def some(names):
    """Those of the engines that are there."""
    return {
        engine: [n for n in names[engine] if n in FUNCTIONS.get(engine, ())] for engine in names
    }


def checked(adjudge_backend, name, modes, *, single=False):
    hosts = POINTS[name]
    if single:
        hosts = [a.astype("complex64" if np.iscomplexobj(a) else "float32") for a in hosts]
    x = adjudge_backend.arrays(*hosts)
    return examine(FUNCTIONS[adjudge_backend.name][name], x, modes=modes, seed=3, blame=False)


@cells("name", torch=TORCH, jax=JAX)
def test_a_right_function_is_no_false_alarm(adjudge_backend, name):
    report = checked(adjudge_backend, name, ["R", "F"])

    assert set() == statuses(report), str(report)


@cells("name", **some(SECOND))
def test_a_right_second_derivative_is_no_false_alarm(adjudge_backend, name):
    report = checked(adjudge_backend, name, ["RR", "FR"])

    assert set() == statuses(report), str(report)


@cells("name", **some(SINGLE))
def test_a_right_function_in_single_precision_is_no_false_alarm(adjudge_backend, name):
    report = checked(adjudge_backend, name, ["R", "F"], single=True)

    assert Verdict.FAIL is not report.verdict, str(report)

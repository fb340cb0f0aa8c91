"""Exact identities and structure with the derivatives of JAX: planted errors, and operators."""

from contextlib import suppress

import numpy as np
import pytest

from adjudge import Status, Verdict, examine

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import jax
    import jax.numpy as jnp

pytestmark = pytest.mark.backend("jax")


def statuses(report):
    return {finding.status for finding in report.findings if not finding.note}


def real(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("letter", ["R", "F"])
def test_a_linear_rule_is_checked_to_rounding(letter, double, with_vjp, with_jvp):
    x = double(real(8))
    if letter == "R":
        rules = [with_vjp(lambda x: 3 * x, lambda x, w, c=c: (3 * w * c,)) for c in (1, 1 + 1e-12)]
    else:
        rules = [with_jvp(lambda x: 3 * x, lambda x, v, c=c: 3 * v * c) for c in (1, 1 + 1e-12)]

    right, wrong = (examine(rule, x, modes=[letter], seed=1) for rule in rules)

    assert right
    assert statuses(wrong) == {Status.MISMATCH}
    assert "the function is affine there" in wrong.headline


def test_a_leak_between_the_rows_of_a_batch_is_spurious(double, with_vjp):
    x = double(real(6, 3))
    right, wrong = (
        examine(
            with_vjp(jnp.sin, lambda x, w, leak=leak: (w * jnp.cos(x) + leak * w.mean(0),)),
            x,
            modes=["R"],
            seed=1,
        )
        for leak in (0.0, 1e-10)
    )

    assert right
    assert statuses(wrong) == {Status.SPURIOUS}


def test_a_second_derivative_that_is_asymmetric_by_1e_9_is_inconsistent(double, with_vjp, with_jvp):
    def gradient(skew):
        def push(x, w, dx, dw):
            s, c = jnp.sin(x.sum()), jnp.cos(x.sum())
            tilt = w * s * (dx.sum() + skew * jnp.roll(dx, 1))
            return dw * c * jnp.ones_like(x) - tilt * jnp.ones_like(x)

        return with_jvp(lambda x, w: w * jnp.cos(x.sum()) * jnp.ones_like(x), push)

    right, wrong = (
        examine(
            with_vjp(lambda x: jnp.sin(x.sum()), lambda x, w, g=g: (g(x, w),)),
            double(real(6)),
            modes=["RR"],
            seed=1,
        )
        for g in (gradient(0.0), gradient(1e-9))
    )

    assert right
    assert statuses(wrong) == {Status.INCONSISTENT}
    assert "is not symmetric in inputs[0]" in wrong.headline


def functions():
    """One of each kind: the operators of JAX, all of them, are in benchmarks/gate.py."""
    A, spd = real(6, 5), real(4, 4)
    spd = spd @ spd.T + np.eye(4)
    hilbert = 1 / (np.arange(6)[:, None] + np.arange(6) + 1)
    z = real(5) + 1j * real(5, seed=1)
    return {
        "sin": (jnp.sin, real(5, 4)),
        "logsumexp": (jax.scipy.special.logsumexp, real(9)),
        "softmax": (jax.nn.softmax, real(4, 5)),
        "constant matrix": (lambda x: A.astype(x.dtype) @ x, real(5)),
        "relu": (jax.nn.relu, real(8)),
        "cumsum": (jnp.cumsum, real(500)),
        "sum": (jnp.sum, real(3000)),
        "mean and a constant": (lambda x: x.mean() + 1e8, real(50)),
        "fft": (jnp.fft.fft, z),
        "irfft": (jnp.fft.irfft, z),
        "cholesky": (lambda a: jnp.linalg.cholesky((a + a.T) / 2), spd),
        "eigvalsh": (lambda a: jnp.linalg.eigvalsh((a + a.T) / 2), spd),
        "solve": (jnp.linalg.solve, (spd, real(4))),
        "solve, captured": (lambda b: jnp.linalg.solve(hilbert.astype(b.dtype), b), real(6)),
        "complex product": (jnp.multiply, (z, real(5))),
        "abs of complex": (jnp.abs, z),
        "sort": (jnp.sort, real(7)),
        "digamma": (jax.scipy.special.digamma, np.abs(real(5)) + 0.5),
        "layer norm": (lambda x: (x - x.mean(1)[:, None]) / x.std(1)[:, None], real(6, 3)),
        "scan": (lambda x: jax.lax.scan(lambda c, t: (c * 0.9 + t, c), 0 * x[0], x)[1], real(40)),
        "einsum": (lambda a, b: jnp.einsum("ij,jk->k", a, b), (real(4, 5), real(5, 3))),
        "segment sum": (lambda x: jax.ops.segment_sum(x, np.asarray([0, 1, 1, 0])), real(4, 2)),
    }


NAMES = [*functions()] if "jax" in globals() else []


@pytest.mark.parametrize("name", NAMES)
def test_a_right_function_is_no_false_alarm(name, double):
    f, x = functions()[name]
    x = jax.tree.map(double, x)

    report = examine(f, x, modes=["R", "F"], seed=3)

    assert set() == statuses(report), str(report)


@pytest.mark.parametrize("name", NAMES[::4])
def test_a_right_second_derivative_is_no_false_alarm(name, double):
    f, x = functions()[name]

    report = examine(f, jax.tree.map(double, x), modes=["RR", "FR"], seed=3)

    assert set() == statuses(report), str(report)


@pytest.mark.parametrize("name", NAMES[::2])
def test_a_right_function_in_single_precision_is_no_false_alarm(name):
    f, x = functions()[name]
    x = jax.tree.map(lambda a: jnp.asarray(a, "complex64" if a.dtype.kind == "c" else "float32"), x)

    report = examine(f, x, modes=["R", "F"], seed=3)

    assert Verdict.FAIL is not report.verdict, str(report)

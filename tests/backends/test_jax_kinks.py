"""Kinks and jumps of JAX's own functions, and of rules that are wrong beside a kink."""

from contextlib import suppress

import numpy as np
import pytest

from adjudge import Status, Verdict, examine
from adjudge.findings import Meaning

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import jax
    import jax.numpy as jnp

pytestmark = pytest.mark.backend("jax")


@pytest.mark.parametrize("name", ["relu", "sort", "hinge", "hardtanh"])
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("letter", ["R", "F"])
def test_a_kink_passes_with_a_note(name, mode, letter):
    f, x = {
        "relu": (jax.nn.relu, [0.0, 1.0, -2.0]),
        "sort": (jnp.sort, [2.0, 1.0, 2.0]),
        "hinge": (lambda x: jax.nn.relu(1 - x).sum(), [1.0, 0.2]),
        "hardtanh": (lambda x: jnp.where(jnp.abs(x) < 1, x, jnp.sign(x)), [1.0, -1.0, 0.3]),
    }[name]

    report = examine(f, jnp.asarray(np.asarray(x)), mode=mode, modes=[letter], seed=1)

    assert report.verdict is Verdict.PASS
    assert {Status.NONSMOOTH} == {finding.status for finding in report.findings}


def test_a_norm_at_zero_whose_gradient_is_nan_stays_open():
    report = examine(lambda x: jnp.sqrt(jnp.sum(x**2)), jnp.zeros(3))

    assert report.verdict is Verdict.INCONCLUSIVE


def test_a_jump_stays_open():
    report = examine(lambda x: jnp.floor(x) + x, jnp.asarray([2.0, 0.7]))

    assert report.verdict is Verdict.INCONCLUSIVE
    assert Meaning.JUMP is report.findings[0].detail.meaning


def test_a_relu_that_is_wrong_for_positive_entries_fails_at_zeros():
    @jax.custom_vjp
    def wrong(x):
        return jnp.maximum(x, 0)

    wrong.defvjp(lambda x: (wrong(x), x), lambda x, w: (0.5 * w * (x > 0),))

    report = examine(wrong, jnp.zeros(5))

    assert report.verdict is Verdict.FAIL
    assert 0.01 == report.ranked[0].moved

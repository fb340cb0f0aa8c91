"""Derivatives of JAX under vmap: equal to the loop, or the report says what is not."""

import importlib

import numpy as np
import pytest

from adjudge import InputError, Status, Verdict, examine

pytestmark = pytest.mark.backend("jax")


@pytest.fixture
def batched_cos(jnp):
    """`cos(x) v` whose batching rule is off by a factor."""

    def make(factor):
        scaled = importlib.import_module("jax.custom_batching").custom_vmap(
            lambda x, v: jnp.cos(x) * v
        )

        @scaled.def_vmap
        def rule(size, batched, x, v):
            return factor * jnp.cos(x) * v, True

        return scaled

    return make


FORWARD = {"check_forward_ad": True, "check_backward_ad": False}


def test_the_vmapped_vjp_of_ordinary_functions_is_the_loop(jnp, x):
    report = examine(lambda x: jnp.sin(x) * x[0], (x,), check_batched_grad=True, seed=0)
    without = examine(lambda x: jnp.sin(x) * x[0], (x,), seed=0)

    assert report.verdict is Verdict.PASS
    assert report.counts["identities"] > without.counts["identities"]


def test_a_vjp_that_is_wrong_under_vmap_alone_is_found(jnp, x, batched_cos, with_vjp):
    def rule(factor):
        cos = batched_cos(factor)
        return with_vjp(jnp.sin, lambda x, w: (cos(x, w),))

    right = examine(rule(1.0), (x,), check_batched_grad=True, seed=0)
    wrong = examine(rule(2.0), (x,), check_batched_grad=True, seed=0)
    unasked = examine(rule(2.0), (x,), seed=0)

    assert right.verdict is Verdict.PASS
    assert unasked.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert {finding.status for finding in wrong.findings} == {Status.INCONSISTENT}
    assert "the vmapped vjp for out is not the loop over the batch" in wrong.headline


def test_values_far_above_a_vjp_hide_no_batching_rule(jnp, x, batched_cos, with_vjp):
    x = x.astype("float32")
    for factor, right in ((1.0, Verdict.PASS), (1.5, Verdict.FAIL)):
        cos = batched_cos(factor)
        rule = with_vjp(lambda x: jnp.sin(x) + 3e4, lambda x, w, cos=cos: (cos(x, w),))
        report = examine(rule, (x,), check_batched_grad=True, seed=0, blame=False)
        assert report.verdict is right, report


def test_rounding_that_differs_between_a_batch_and_the_loop_is_no_error(jnp, x, with_vjp):
    """Kernels for a batch add in another order, which an ill-conditioned rule makes more of."""
    batching = importlib.import_module("jax.custom_batching")

    def rule(factor):
        @batching.custom_vmap
        def times(x, w):
            large = 1e12 * jnp.sin(w)
            return (jnp.cos(x) * w + large) - large

        @times.def_vmap
        def batch(size, batched, x, w):
            return factor * jnp.cos(x) * w, True

        return with_vjp(jnp.sin, lambda x, w: (times(x, w),))

    right, wrong = rule(1.0), rule(1.01)
    for seed in range(10):
        found = examine(right, (x,), check_batched_grad=True, seed=seed)
        assert not [f for f in found.findings if f.status is Status.INCONSISTENT], found
    report = examine(wrong, (x,), check_batched_grad=True, seed=0)
    assert "the vmapped vjp for out is not the loop" in str(report)


def test_a_jvp_that_is_wrong_under_vmap_alone_is_found(jnp, x, batched_cos, with_jvp):
    def rule(factor):
        return with_jvp(jnp.sin, batched_cos(factor))

    right = examine(rule(1.0), (x,), check_batched_forward_grad=True, seed=0, **FORWARD)
    wrong = examine(rule(2.0), (x,), check_batched_forward_grad=True, seed=0, **FORWARD)
    unasked = examine(rule(2.0), (x,), seed=0, **FORWARD)

    assert right.verdict is Verdict.PASS
    assert unasked.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert "the vmapped jvp for inputs[0] is not the loop over the batch" in wrong.headline


def test_a_vjp_without_a_batching_rule_is_a_finding(jax, jnp, x, with_vjp):
    def backward(x, w):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return (jax.pure_callback(lambda x, w: np.cos(x) * w, shape, x, w),)

    report = examine(with_vjp(jnp.sin, backward), (x,), check_batched_grad=True, seed=0)

    assert report.verdict is Verdict.FAIL
    assert {finding.status for finding in report.findings} == {Status.RAISED}
    assert "the vmapped vjp for out raises" in report.headline


def test_every_output_and_every_input_is_batched(jnp, x, batched_cos, with_vjp, with_jvp):
    cos = batched_cos(2.0)
    vjp = with_vjp(jnp.sin, lambda x, w: (cos(x, w),))
    jvp = with_jvp(jnp.sin, cos)

    outputs = examine(lambda x: (x, vjp(x)), (x,), check_batched_grad=True, seed=0)
    inputs = examine(
        lambda x, y: x + jvp(y), (x, x), check_batched_forward_grad=True, seed=0, **FORWARD
    )

    assert "the vmapped vjp for out[1]" in outputs.headline
    assert "the vmapped jvp for inputs[1]" in inputs.headline


@pytest.mark.parametrize(
    ("batched", "mode"),
    [
        ("check_batched_grad", {"check_forward_ad": True, "check_backward_ad": False}),
        ("check_batched_forward_grad", {}),
    ],
)
def test_batching_of_a_mode_that_is_off_is_a_contradiction(jnp, x, batched, mode):
    with pytest.raises(InputError, match=batched):
        examine(jnp.sin, (x,), **{batched: True}, **mode)

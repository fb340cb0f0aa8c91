"""Derivatives that are zero because terms cancel: rounding is no derivative, and an error is none
the less one.
"""

from functools import partial

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine, reference

SEEDS = range(10)
FEW = range(3)
"""The seeds of full mode, which has the tangents of the entries."""


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_vjp(z, w):
    p = softmax(z)
    return p * (w - np.sum(p * w, axis=-1, keepdims=True))


def log_softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def log_softmax_vjp(z, w):
    return w - softmax(z) * np.sum(w, axis=-1, keepdims=True)


def normalised(axis):
    """A layer norm or a batch norm, over this axis, and its vjp."""

    def norm(z):
        return (z - z.mean(axis=axis, keepdims=True)) / z.std(axis=axis, keepdims=True)

    def vjp(z, w):
        y, std = norm(z), z.std(axis=axis, keepdims=True)
        mean = w.mean(axis=axis, keepdims=True)
        return (w - mean - y * np.mean(y * w, axis=axis, keepdims=True)) / std

    return norm, vjp


def centred(z):
    return z - z.mean()


def cubed(z):
    return centred(z) ** 3


def cross_entropy(z):
    return -np.mean(log_softmax(z)[:, 0])


def cross_entropy_vjp(z, w):
    chosen = np.zeros_like(z)
    chosen[:, 0] = 1
    return w * (softmax(z) - chosen) / z.dtype.type(len(z))


INVARIANT = {
    "softmax": (softmax, softmax_vjp, (1, 1)),
    "log softmax": (log_softmax, log_softmax_vjp, (1, 1)),
    "layer norm": (*normalised(-1), (1, 1)),
    "batch norm": (*normalised(0), (1, 5)),
    "less its mean": (centred, lambda z, w: w - w.mean(), (1, 1)),
    "less its mean, cubed": (cubed, lambda z, w: (t := 3 * centred(z) ** 2 * w) - t.mean(), (1, 1)),
    "cross entropy": (cross_entropy, cross_entropy_vjp, (4, 1)),
}


def with_bias(name, error=0.0, factor=1.0):
    """A function of `x + b` that does not change with b, `error` in the gradient of b, and a factor
    in one entry of that of x.
    """
    f, vjp, shape = INVARIANT[name]

    def rule(x, b, w):
        gx = vjp(x + b, w)
        gb = gx.sum(axis=tuple(np.flatnonzero(np.array(shape) == 1)), keepdims=True)
        gx.flat[0] *= factor
        return gx, gb + w.flat[0] * b.dtype.type(error)

    return ByHand(lambda x, b: f(x + b), vjp=rule), shape


def point(shape, dtype, seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=(4, 5)).astype(dtype)
    return x, random.normal(size=shape).astype(dtype)


@over_seeds(10, always=3)
@pytest.mark.parametrize(("dtype", "mode"), [("float64", "full"), ("float32", "projected")])
@pytest.mark.parametrize("name", INVARIANT)
def test_what_rounding_leaves_of_zero_passes(name, mode, dtype, seeds):
    rule, shape = with_bias(name)

    for seed in seeds if mode == "projected" else seeds[:1]:
        report = examine(rule, point(shape, dtype, seed), mode=mode, seed=seed)

        assert report.verdict is Verdict.PASS, report


@pytest.mark.parametrize(("dtype", "size"), [("float64", 1e-6), ("float32", 1e-2)])
@pytest.mark.parametrize("name", ["softmax", "layer norm", "less its mean", "cross entropy"])
def test_an_error_beside_zero_fails(name, dtype, size):
    for seed in SEEDS[:4]:
        rule, shape = with_bias(name, **({"factor": 2.0} if seed % 4 == 3 else {"error": size}))

        report = examine(rule, point(shape, dtype, seed), mode="projected", seed=seed)

        assert report.verdict is Verdict.FAIL, seed


@over_seeds(10)
def test_rounding_that_a_large_offset_leaves_passes(seeds):
    for seed in seeds:
        rule, shape = with_bias("batch norm")
        x, b = point(shape, "float64", seed)

        assert examine(rule, (x, b + 100), seed=seed).verdict is Verdict.PASS


# ---------------------------------------------------------------- saturated beside others


def attention(keys=1.0, values=1.0):
    """Softmax of q k', times v, as a rule whose gradients of k and v are multiplied by these."""

    def rule(q, k, v, w):
        p = softmax(q @ k.T)
        scores = p * (w @ v.T - np.sum(p * (w @ v.T), axis=-1, keepdims=True))
        return scores @ k, keys * (scores.T @ q), values * (p.T @ w)

    return ByHand(lambda q, k, v: softmax(q @ k.T) @ v, vjp=rule)


def scores(size, seed):
    """q, k and v of an attention whose rows are saturated: their gaps are of this size."""
    random = np.random.default_rng(seed)
    k = np.eye(4) + 0.1 * random.normal(size=(4, 4))
    q = size * np.eye(4)[[0, 2, 1]] * (1 + 0.1 * random.random((3, 4)))
    return q, k, random.normal(size=(4, 3))


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("size", [80.0, 200.0, 1500.0])
def test_a_saturated_attention_passes_with_a_note(size, mode):
    for seed in SEEDS if mode == "projected" else FEW:
        q, k, v = scores(size, seed)

        report = examine(attention(), (q, k, v), mode=mode, seed=seed)

        assert report.verdict is Verdict.PASS, report
        assert size == 1500.0 or "below the rounding of f, beside larger ones" in str(report)


@over_seeds(10)
def test_what_is_seen_beside_a_saturated_attention_fails(seeds):
    for seed in seeds:
        q, k, v = scores(200.0, seed)
        report = examine(attention(values=2.0), (q, k, v), seed=seed)

        assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize(("keys", "verdict"), [(0.0, "INCONCLUSIVE"), (1.0, "PASS")])
def test_a_zero_that_no_tail_leads_to_stays_open(keys, verdict):
    for seed in (0, 1, 2):  # at some others f moves by rounding, and shows nothing
        q, k, v = scores(80.0, seed)
        rule = attention(keys=keys)
        alone = ByHand(partial(rule, q), vjp=partial(later_two, rule.vjp, q))

        assert examine(alone, (k, v), mode="projected", seed=seed).verdict is Verdict[verdict]


def later_two(vjp, *args):
    return vjp(*args)[1:]


@over_seeds(4, always=2)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_rounding_passes_beside_a_reference_that_knows_the_zero(scale, mode, seeds):
    """The relative error of a number that is not zero beside zero is infinite."""

    def vjp(x, w, off=0.0):
        s, c = np.sin(x), np.cos(x)
        return w * (2 * s * c * (1 + 2e-16) - 2 * c * s + off)

    zero = reference.derivative(jvp=lambda x, v: np.zeros_like(x))
    for seed in seeds:
        x = scale * np.random.default_rng(seed).normal(size=4)
        for off, verdict in ((0.0, Verdict.PASS), (1e-6, Verdict.FAIL)):
            rule = ByHand(lambda x: np.cos(x) ** 2 + np.sin(x) ** 2, vjp=partial(vjp, off=off))
            report = examine(rule, x, mode=mode, seed=seed, reference=zero, blame=False)
            assert report.verdict is verdict

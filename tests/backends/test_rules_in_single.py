"""Rules that compute in float32, or hold constants in it, of functions that do not: right where the
inputs have no more digits than that. Where they round to fewer digits than the inputs have, they
are wrong.
"""

import math
from itertools import product

import numpy as np
from frameworks import torch
from scenarios import cells, long, over_seeds

from adjudge import Verdict, examine

SHAPE = (6, 5)
NARROW = ["float32", "float16", "bfloat16"]


def numbers():
    return np.random.default_rng(3).normal(size=SHAPE)


def in_dtype(xp, dtype):
    """The formulas of derivatives, computed in `dtype` and rounded to that of x at the end."""

    def silu(x, w, part=1.0):
        x, w, given = xp.astype(x, dtype), xp.astype(w, dtype), x.dtype
        s = 1 / (1 + xp.exp(-x))
        return xp.astype(w * s * (1 + part * x * (1 - s)), given)

    def softmax(x, w, part=1.0):
        x, w, given = xp.astype(x, dtype), xp.astype(w, dtype), x.dtype
        e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
        y = e / xp.sum(e, axis=1, keepdims=True)
        return xp.astype(y * (w - part * xp.sum(w * y, axis=1, keepdims=True)), given)

    return {"silu": silu, "softmax": softmax}


def functions(xp):
    def softmax(x):
        e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
        return e / xp.sum(e, axis=1, keepdims=True)

    return {"silu": lambda x: x / (1 + xp.exp(-x)), "softmax": softmax}


def seeds_of(backend, seeds):
    """Fewer on JAX, which takes ten times as long: what is drawn is drawn by the core."""
    return seeds[:1] if backend.name == "jax" else seeds


def verdicts(f, x, seeds, **options):
    return {examine(f, x, seed=seed, blame=False, **options).verdict for seed in seeds}


@over_seeds(10)
@cells(
    ("name", "dtype"),
    torch=[
        *(("silu", "float32"), ("softmax", "float16"), ("silu", "bfloat16")),
        *(long("softmax", "float32"), long("silu", "float16"), long("softmax", "bfloat16")),
    ],
    jax=[("silu", "float32"), long("softmax", "bfloat16")],
)
def test_a_rule_that_computes_in_float32_is_right_for_no_more_digits(
    adjudge_backend, with_vjp, name, dtype, seeds
):
    xp, seeds = adjudge_backend.xp, seeds_of(adjudge_backend, seeds)
    rule, f = in_dtype(xp, xp.float32)[name], functions(xp)[name]
    x = adjudge_backend.array(numbers(), dtype)

    assert {Verdict.PASS} == verdicts(with_vjp(f, rule), x, seeds)
    assert {Verdict.FAIL} == verdicts(with_vjp(f, lambda x, w: rule(x, w, part=0.99)), x, seeds)


@over_seeds(10)
@cells(
    ("name", "narrow", "inside"),
    torch=[
        *(("silu", "bfloat16", False), ("silu", "float16", True)),
        *(("softmax", "float16", False), ("softmax", "bfloat16", True)),
        *(long("silu", "bfloat16", True), long("silu", "float16", False)),
        *(long("softmax", "float16", True), long("softmax", "bfloat16", False)),
    ],
    jax=[("silu", "bfloat16", False), long("softmax", "float16", True)],
)
def test_a_rule_that_rounds_to_sixteen_bits_is_wrong_in_float32(
    adjudge_backend, with_vjp, name, narrow, inside, seeds
):
    xp, seeds = adjudge_backend.xp, seeds_of(adjudge_backend, seeds)
    g = functions(xp)[name]
    f = (lambda x: xp.astype(g(xp.astype(x, xp.float32)), x.dtype)) if inside else g
    rule, right = (in_dtype(xp, getattr(xp, one))[name] for one in (narrow, "float32"))
    x = adjudge_backend.array(numbers(), "float32")

    assert {Verdict.FAIL} == verdicts(with_vjp(f, rule), x, seeds)
    assert {Verdict.PASS} == verdicts(with_vjp(f, right), x, seeds)


@over_seeds(10)
@cells("narrow", torch=["bfloat16", None])
def test_a_rule_of_a_norm_that_rounds_to_sixteen_bits_is_wrong_in_float32(
    adjudge_backend, with_vjp, narrow, seeds
):
    def root(x):
        return torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)

    def rule(x, gain, w):
        r, y = root(x), x.float()
        m = w.float() * gain.float()
        m = m if narrow is None else m.to(getattr(torch, narrow)).float()
        of_x = r * m - r**3 * y * (m * y).mean(-1, keepdim=True)
        return of_x.to(x.dtype), (w.float() * y * r).sum(0).to(gain.dtype)

    norm = with_vjp(lambda x, gain: (x.float() * root(x) * gain.float()).to(x.dtype), rule)
    draws = np.random.default_rng(0)
    x, gain = (adjudge_backend.array(draws.normal(size=k), "float32") for k in ((16, 32), 32))

    found = {examine(norm, (x, gain), seed=seed, blame=False).verdict for seed in seeds}

    assert {Verdict.PASS if narrow is None else Verdict.FAIL} == found


def leaky(slope):
    return lambda x, w: w * torch.where(x > 0, 1.0, slope)


def gelu(of):
    """The derivative of the approximation by a hyperbolic tangent, which cancels near -0.75."""

    def rule(x, w):
        root = torch.sqrt(torch.tensor(of))
        t = torch.tanh(root * (x + 0.044715 * x**3))
        inner = root * (1 + 3 * 0.044715 * x**2)
        return w * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)

    return rule


def masked(part):
    """That of the mean of the numbers that a mask keeps."""

    def rule(x, w):
        mask = torch.arange(x.shape[1]) < 3
        return w[:, None] * (part * mask / mask.sum())

    return rule


CONSTANTS = {
    "where": (lambda x: torch.where(x > 0, x, 0.1 * x), leaky(0.1), leaky(0.1001)),
    "root": (
        lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        gelu(2 / math.pi),
        gelu(1.0002 * 2 / math.pi),
    ),
    "mask": (lambda x: x[:, :3].sum(1) / 3, masked(1.0), masked(1.0001)),
    "temperature": (
        lambda x: x / 0.07,
        lambda x, w: w * torch.tensor(1 / 0.07),
        lambda x, w: w * torch.tensor(1 / 0.070007),
    ),
}


@over_seeds(10)
@cells(
    ("name", "dtype", "options"),
    torch=[
        *product(CONSTANTS, ["float32", "bfloat16"], [{}]),
        *(long(name, "float16", {}) for name in CONSTANTS),
        *product(CONSTANTS, ["float32"], [{"modes": ["R"]}]),
    ],
)
def test_a_rule_may_hold_constants_in_float32_for_no_more_digits(
    adjudge_backend, with_vjp, name, dtype, options, seeds
):
    f, right, wrong = CONSTANTS[name]
    x = adjudge_backend.array(numbers(), dtype)

    assert {Verdict.PASS} == verdicts(with_vjp(f, right), x, seeds, **options)
    assert {Verdict.FAIL} == verdicts(with_vjp(f, wrong), x, seeds, **options)


@over_seeds(4)
@cells(("size", "dtype"), torch=product([400, 20000], ["float32", "bfloat16"]))
def test_a_constant_is_off_to_the_same_side_in_every_entry(
    adjudge_backend, with_vjp, size, dtype, seeds
):
    x = adjudge_backend.array(np.random.default_rng(5).normal(size=size), dtype)

    def third(of):
        return with_vjp(lambda x: x / 3, lambda x, w: w * torch.tensor(of / 3))

    assert {Verdict.PASS} == verdicts(third(1.0), x, seeds)
    assert {Verdict.FAIL} == verdicts(third(1.0 + 1e-5), x, seeds)


@over_seeds(10)
@cells("dtype", torch=NARROW)
def test_an_entry_that_is_missing_beside_a_large_one_is_no_rounding(
    adjudge_backend, with_vjp, dtype, seeds
):
    weights, kept = np.ones(30), np.ones(30)
    weights[0] = 1e4 if dtype == "float16" else 1e6

    def rule(part):
        kept[7] = part
        c, left = (torch.tensor(of).to(x.dtype) for of in (weights, kept))
        return with_vjp(lambda x: (x * x * c).sum(), lambda x, w: 2 * w * x * c * left.to(w.dtype))

    values = np.random.default_rng(6).normal(size=30)
    values[[0, 7]] = 3.0, 0.1
    x = adjudge_backend.array(values, dtype)

    assert Verdict.PASS not in verdicts(rule(0.0), x, seeds)
    assert Verdict.FAIL not in verdicts(rule(1.0), x, seeds)

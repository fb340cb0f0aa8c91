"""Functions with numbers of several precisions: inside, of which some have no part in the outputs,
and among the outputs, of which each is judged by its own precision.
"""

import numpy as np
from scenarios import cells, long, on_both, over_seeds

from adjudge import Verdict, examine

SEEDS = range(10)


def seeds_of(backend, seeds):
    """Fewer on JAX, which takes ten times as long: what is drawn is drawn by the core."""
    return seeds[:1] if backend.name == "jax" else seeds


def numbers(seed, size, count=3):
    return size * (1 + 0.3 * np.random.default_rng(seed).random(count))


# ---------------------------------------------------------------- stairs beside a narrow dtype


def cast(xp, x, name):
    return xp.astype(x, getattr(xp, name))


STAIRS = {
    "float16 times zero": lambda xp, x: xp.round(x) + 0 * cast(xp, x, "float16"),
    "bfloat16 times zero": lambda xp, x: xp.floor(x) + 0 * cast(xp, x, "bfloat16"),
    "float32 times zero": lambda xp, x: xp.round(16 * x) / 16 + 0 * cast(xp, x, "float32"),
    "float16 is not used": lambda xp, x: (cast(xp, x, "float16") + 1, xp.round(x))[1],
    "half as high again": lambda xp, x: 1.5 * xp.ceil(x) + 0 * cast(xp, x, "float16"),
    "thirds": lambda xp, x: xp.round(3 * x) / 3 + 0 * cast(xp, x, "float16"),
}


@over_seeds(10, always=3)
@cells("name", torch=[*STAIRS], jax=["thirds", long("float16 times zero")])
def test_stairs_beside_numbers_that_have_no_part_in_them(adjudge_backend, with_vjp, name, seeds):
    xp = adjudge_backend.xp

    def stairs(x):
        return STAIRS[name](xp, x)

    zero, through = with_vjp(stairs, lambda x, w: 0 * w), with_vjp(stairs, lambda x, w: w)
    for seed in seeds_of(adjudge_backend, seeds):
        size = (3.3, 20.0, 100.3, 317.0, 1000.2)[seed % 5]
        x = adjudge_backend.array(numbers(seed, size), "float64")
        mode = "projected" if seed % 2 else "full"
        right = examine(zero, x, mode=mode, seed=seed, blame=False)
        wrong = examine(through, x, mode=mode, seed=seed, blame=False)
        assert right.verdict is Verdict.PASS, right
        assert wrong.verdict is Verdict.FAIL, wrong


ROUNDED = {
    "x": lambda xp, x: 3 * cast(xp, cast(xp, x, "float16"), "float64"),
    "an exponential": lambda xp, x: cast(xp, cast(xp, xp.exp(x / 30), "float16"), "float64") * x,
    "in single": lambda xp, x: cast(xp, cast(xp, x, "float32"), "float64") * x,
}


@over_seeds(5)
@cells("name", torch=[*ROUNDED], jax=["x"])
def test_what_is_rounded_inside_is_no_staircase(adjudge_backend, spoiled, name, seeds):
    xp = adjudge_backend.xp

    def f(x):
        return ROUNDED[name](xp, x)

    flipped = spoiled(f, lambda x, g: -g)
    for seed in seeds_of(adjudge_backend, seeds):
        x = adjudge_backend.array(numbers(seed, 20.0), "float64")
        right, wrong = (examine(g, x, seed=seed, blame=False) for g in (f, flipped))
        assert right.verdict is not Verdict.FAIL, right
        assert wrong.verdict is Verdict.FAIL, wrong


# ---------------------------------------------------------------- outputs of several precisions

BESIDE = {
    "a copy in float16": lambda xp, x: cast(xp, x, "float16"),
    "a mask of bfloat16": lambda xp, x: cast(xp, x > 0, "bfloat16"),
    "a copy in float32": lambda xp, x: 2 * cast(xp, x, "float32"),
    "a constant of float32": lambda xp, x: xp.asarray(1.0, dtype=xp.float32),
    "one number of bfloat16": lambda xp, x: cast(xp, xp.sum(x * x), "bfloat16"),
    "an empty array": lambda xp, x: cast(xp, x[:0], "float16"),
}


@over_seeds(4)
@cells("name", torch=[*BESIDE], jax=["a copy in float16", long("one number of bfloat16")])
def test_an_output_is_judged_by_its_own_precision(adjudge_backend, spoiled, name, seeds):
    xp = adjudge_backend.xp

    def beside(sine):
        return lambda x: (sine(x), BESIDE[name](xp, x))

    by = {"float64": (1.05, 1 + 1e-5), "float32": (1.05, 0.98)}
    for dtype, factors in by.items():
        wrong = [spoiled(xp.sin, lambda x, g, k=k: k * g) for k in factors]
        for seed in seeds_of(adjudge_backend, seeds if "copy" in name else seeds[:2]):
            values = np.random.default_rng(seed).normal(size=6)
            x = adjudge_backend.array(values, dtype)
            mode = "projected" if seed % 2 else "full"
            options = {"mode": mode, "seed": seed, "blame": False}
            right = examine(beside(xp.sin), x, **options)
            assert right.verdict is not Verdict.FAIL, right
            if name != "one number of bfloat16":  # whose own derivative is open by rights
                assert right.verdict is Verdict.PASS or "float16" in name, right
            report = examine(
                beside(wrong[(seed + seed // 2) % 2]), x, **options
            )  # each in both modes
            assert report.verdict is Verdict.FAIL, report
            assert "out[0]" in report.worst.output


@on_both
def test_a_second_derivative_is_judged_by_the_precision_of_its_output(adjudge_backend, with_vjp):
    xp = adjudge_backend.xp

    def sine(factor):
        cosine = with_vjp(xp.cos, lambda x, w: -factor * w * xp.sin(x))
        return with_vjp(xp.sin, lambda x, w: w * cosine(x))

    def beside(own):
        return lambda x: (own(x), cast(xp, x, "float16"))

    for seed in SEEDS[: 1 if adjudge_backend.name == "jax" else 3]:
        x = adjudge_backend.array(np.random.default_rng(seed).normal(size=6), "float64")
        right, wrong = (
            examine(beside(sine(factor)), x, modes=["RR"], seed=seed, blame=False)
            for factor in (1.0, 1.01)
        )
        assert right.verdict is not Verdict.FAIL, right
        assert wrong.verdict is Verdict.FAIL, wrong


@on_both
def test_what_is_cut_off_in_sixteen_bits_fails_at_every_seed(adjudge_backend, spoiled):
    xp = adjudge_backend.xp

    def f(x):
        return cast(xp, x, "float16")

    cut = spoiled(f, lambda x, g: 0 * g)
    for seed in seeds_of(adjudge_backend, SEEDS):
        x = adjudge_backend.array(np.random.default_rng(seed).normal(size=6), "float64")
        report = examine(cut, x, mode="projected", seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL, report


@on_both
def test_what_is_cut_off_below_a_millionth_in_bfloat16_fails_at_every_seed(
    adjudge_backend, with_vjp
):
    """Its numbers are as small as those of float32; those of float16 are not. The values lie above
    the derivative by more than their rounding, and hide nothing.
    """
    xp = adjudge_backend.xp

    def f(x):
        return xp.tanh(x) + 10

    def vjp(cut):
        return lambda x, w: xp.where(xp.abs(w) < cut, 0 * w, w) * (1 - xp.tanh(x) ** 2)

    right, wrong = (with_vjp(f, vjp(cut)) for cut in (0.0, 1e-5))
    for seed in seeds_of(adjudge_backend, SEEDS):
        x = adjudge_backend.array(np.random.default_rng(seed).normal(size=(4, 6)), "bfloat16")
        assert examine(right, x, seed=seed, blame=False).verdict is Verdict.PASS
        report = examine(wrong, x, seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL, report

"""Functions that convert numbers to sixteen bits inside are judged past these conversions; see
`test_torch_conversions`. Their programs are run in double precision.
"""

import numpy as np
import pytest
from frameworks import jax, jnp
from scenarios import long, over_seeds

import adjudge
from adjudge import Verdict
from adjudge.engine.registry import backend_named

pytestmark = pytest.mark.backend("jax")

RANDOM = np.random.default_rng(0)
A, B = RANDOM.normal(size=(6, 8)) / 2.4, RANDOM.normal(size=(8, 4)) / 2.8


def sine(factor):
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    def backward(x, w):
        return (w * jnp.cos(x) * jnp.asarray(factor, x.dtype),)

    f.defvjp(lambda x: (jnp.sin(x), x), backward)
    return f


def narrow(x):
    return jnp.asarray(x).astype(jnp.bfloat16)


def wide(x):
    return x.astype(jnp.float32)


# Each returns a function of x, whose parts are made once: JAX compiles what is new to it.


def layers(f):
    inner = jax.jit(lambda x: f(narrow(x) @ narrow(A)) @ narrow(B))
    return lambda x: wide(inner(x))


def recurrent(f):
    def step(carry, row):
        carry = f(carry @ narrow(A[:4, :4]) + narrow(row[:4]))
        return carry, carry

    return lambda x: wide(jax.lax.scan(step, jnp.zeros(4, jnp.bfloat16), x)[1])


def loop_in_two_precisions(f):
    def body(k, c):
        return wide(f(narrow(c) * 1.1))

    return lambda x: jax.lax.fori_loop(0, 3, body, x)


def dropout(f):
    def drops(x):
        kept = jax.random.bernoulli(jax.random.key(0), 0.5, x.shape)
        return wide(f(narrow(jnp.where(kept, x, 0.0))))

    return drops


def embedding(f):
    return lambda x: wide(f(narrow(x)[jnp.asarray([0, 1, 1, 2])]))


def small_part(f):
    return lambda x: f(x) + 1e-3 * wide(narrow(x))


def one_branch(f):
    def taken(x):
        return wide(f(narrow(x)))

    def other(x):
        return x

    return lambda x: jax.lax.cond(x[0, 0] < 9, taken, other, x)


def judged(function, factor, seed, rows=3, **options):
    x = jnp.asarray(np.random.default_rng(seed).normal(size=(rows, 6)), jnp.float32)
    options = {"seed": seed, "blame": False, **options}
    return adjudge.examine(function(sine(factor)), (x,), **options)


# A wrong one is planted in each way in which equations hold others: once, in turn, and as a branch.
ENTERED = (layers, recurrent, loop_in_two_precisions, one_branch)


@pytest.mark.parametrize(
    ("function", "factor", "verdict"),
    [
        *((f, 1.0, Verdict.PASS) for f in (*ENTERED, embedding)),
        long(dropout, 1.0, Verdict.PASS),
        *((f, 1.05, Verdict.FAIL) for f in ENTERED),
    ],
)
def test_a_right_derivative_passes_and_a_wrong_one_fails(function, factor, verdict):
    report = judged(function, factor, 1)

    assert report.verdict is verdict, str(report)


@pytest.mark.parametrize(
    ("function", "factor", "verdict"),
    [
        (layers, 1.0, Verdict.PASS),
        (small_part, 1.0, Verdict.PASS),
        (small_part, 1.05, Verdict.FAIL),
    ],
)
def test_so_it_is_beside_an_exact_reference(function, factor, verdict):
    pytest.importorskip("flint")

    report = judged(function, factor, 1, rows=1, reference="exact")

    assert report.verdict is verdict, str(report)
    assert report.certified


def sine_by_its_jvp(factor):
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    @f.defjvp
    def _(x, v):
        return jnp.sin(x[0]), v[0] * jnp.cos(x[0]) * jnp.asarray(factor, x[0].dtype)

    return f


@pytest.mark.parametrize(
    ("function", "factor", "verdict"),
    [
        (layers, 1.0, Verdict.PASS),
        (small_part, 1.0, Verdict.PASS),
        (small_part, 1.05, Verdict.FAIL),
    ],
)
def test_so_it_is_in_forward_mode(function, factor, verdict):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 6)), jnp.float32)
    f = function(sine_by_its_jvp(factor))

    report = adjudge.examine(f, (x,), modes=["R", "F"], seed=0, blame=False)

    assert report.modes == {"R": verdict, "F": verdict}, str(report)


@over_seeds(2)
def test_it_does_not_depend_on_what_is_drawn(seeds):
    for seed in seeds:
        right = judged(small_part, 1.0, seed)

        assert right.verdict is Verdict.PASS, str(right)
        assert "past its conversions to narrower dtypes" in right.provenance.note
        assert judged(small_part, 0.97, seed).verdict is Verdict.FAIL


def test_a_step_that_does_not_run_past_its_conversions_decides_nothing():
    def read_by_bits(f):
        def read(x):
            y = narrow(f(x))
            bits = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(y), jnp.uint16)
            return wide(y * (bits >= 0))

        return read

    assert judged(read_by_bits, 1.0, 0).verdict is not Verdict.FAIL
    assert judged(read_by_bits, -1.0, 0).verdict is not Verdict.PASS


@pytest.mark.parametrize(("coarsest", "compiles"), [(float("inf"), 1), (1e-6, 0)])
def test_a_program_that_rounds_is_not_compiled(monkeypatch, coarsest, compiles):
    """XLA may leave out a rounding of a compiled program that is asked for."""
    calls, jit = [], jax.jit
    environment = backend_named("jax").environment
    x = jnp.asarray(RANDOM.normal(size=5), jnp.float32)
    f = environment.past_casts(lambda leaves: (wide(narrow(leaves[0])),), (x,), coarsest)
    with environment.widening_past_casts((x,), coarsest):
        monkeypatch.setattr(jax, "jit", lambda *args, **options: calls.append(1) or jit(*args))
        (y,) = f((jnp.asarray(np.asarray(x), jnp.float64),))
        monkeypatch.undo()

    rounded = np.asarray(x if compiles else wide(narrow(x)), np.float64)
    np.testing.assert_array_equal(np.asarray(y), rounded)
    assert len(calls) == compiles


def test_a_call_of_python_is_not_run_past_conversions():
    """Its results have the dtypes that it was written for, whatever it is given."""

    @jax.custom_jvp
    def called(x):
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(np.sin, like, x, vmap_method="sequential")

    called.defjvp(lambda x, v: (called(*x), jnp.cos(x[0]) * v[0]))
    report = judged(lambda f: lambda x: called(x) * wide(jnp.cos(narrow(x))), 1.0, 0)

    assert report.verdict is not Verdict.FAIL, str(report)
    assert "judged natively" in report.provenance.note


def test_an_error_far_below_what_float32_resolves_shows_past_it():
    def normalised(f, x):
        single = f(x).astype(jnp.float32)
        return (single * jax.lax.rsqrt((single**2).mean() + 1e-6)).astype(x.dtype)

    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(1).normal(size=5))
        for factor, verdict in ((1.0, Verdict.PASS), (1 + 1e-5, Verdict.FAIL)):
            f = sine(factor)
            found = adjudge.examine(lambda x, f=f: normalised(f, x), (x,), blame=False)

            assert found.verdict is verdict, str(found)


def test_a_function_is_traced_once_for_all_points_past_its_conversions():
    """Traced and run operation by operation at each of them, it takes a hundred times as long."""
    calls = []

    @jax.custom_vjp
    def f(x):
        calls.append("value")
        return wide(narrow(x)) ** 2

    def backward(x, w):
        calls.append("vjp")
        return (2 * w * wide(narrow(x)),)

    f.defvjp(lambda x: (f(x), x), backward)
    environment = backend_named("jax").environment
    x = jnp.asarray(RANDOM.normal(size=(5, 3)), jnp.float32)
    g = environment.past_casts(lambda leaves: (f(leaves[0]),), (x,))
    with environment.widening_past_casts():
        for row in np.asarray(x, np.float64):
            (y,), pullback = jax.vjp(g, (jnp.asarray(row),))
            ((found,),) = pullback((jnp.ones(3),))

            np.testing.assert_allclose(y, row**2, rtol=1e-15)
            np.testing.assert_allclose(found, 2 * row, rtol=1e-15)
    assert sorted(calls) == ["value", "value", "vjp"]


def sigmoid(x):
    return 1 / (1 + jnp.exp(-x))


def slope_with_sign(kind, right):
    """A function `(x, k) -> k swish'(x), sign(x)` for integers k, with a rule of its own."""

    def value(x, k):
        s = sigmoid(x)
        return k * s * (1 + x * (1 - s)), jnp.sign(x).astype(jnp.int32)

    def slope(x, k):
        s = sigmoid(x)
        # a number of Python times integers is a float32 of weak type
        return 1.0 * k * s * (1 - s) * (2 + x * ((1 - 2 * s) if right else (1 - s)))

    if kind == "vjp":
        f = jax.custom_vjp(value)
        f.defvjp(lambda x, k: (value(x, k), (x, k)), lambda kept, w: (slope(*kept) * w[0], None))
        return f
    f = jax.custom_jvp(value)

    @f.defjvp
    def _(primals, tangents):
        y = f(*primals)
        return y, (slope(*primals) * tangents[0], np.zeros(y[1].shape, jax.dtypes.float0))

    return f


def of_rule(f, x, k):
    return f(x, k)


def of_scan(f, x, k):
    return jax.lax.scan(lambda carry, row: (carry, f(*row)), 0, (x, k))[1]


@over_seeds(5)
@pytest.mark.parametrize(
    ("inside", "kind", "dtype", "cast"),
    [
        (of_rule, "vjp", "bfloat16", True),
        long(of_scan, "jvp", "bfloat16", False),
        long(of_rule, "jvp", "bfloat16", False),
        long(of_rule, "jvp", "float32", True),
        long(of_scan, "vjp", "bfloat16", True),
    ],
)
def test_a_rule_inside_of_a_rule_is_kept(inside, kind, dtype, cast, seeds):
    """In second order a formula would be differentiated in its place, and agree with itself."""

    def swish(x):
        return 2 * x * sigmoid(narrow(x).astype(x.dtype) if cast else x)

    for right, verdict in ((True, Verdict.PASS), (False, Verdict.FAIL)):
        inner, f = slope_with_sign(kind, right), jax.custom_vjp(swish)

        def backward(x, w, inner=inner):
            return (w * inside(inner, x, jnp.full(x.shape, 2))[0],)

        f.defvjp(lambda x: (swish(x), x), backward)
        x = jnp.asarray(np.random.default_rng(2).normal(size=(3, 4)), dtype)
        for seed in seeds:
            report = adjudge.examine(f, (x,), modes=["RR"], seed=seed, blame=False)

            assert report.verdict is verdict, str(report)


def test_a_number_of_python_times_integers_is_run_past_conversions():
    """It is a float32 of weak type, whose dtype among others is that of the other."""
    x, k = jnp.asarray(RANDOM.normal(size=5), jnp.float32), jnp.arange(1, 6)
    for factor, verdict in ((1.0, Verdict.PASS), (0.97, Verdict.FAIL)):
        f = sine(factor)
        report = adjudge.examine(lambda x, f=f: wide(f(narrow(x))) * (0.3 * k), (x,), blame=False)

        assert report.verdict is verdict, str(report)
        assert "past its conversions to narrower dtypes" in report.provenance.note


@pytest.mark.parametrize(("tolerance", "verdict"), [(1e-8, Verdict.PASS), (1e-3, Verdict.FAIL)])
def test_a_solver_inside_of_another_equation_is_run_past_conversions(tolerance, verdict):
    """How often its loop turns is not known where its program is only traced."""

    def solved(a, b):
        def product(v):
            return a @ (a.T @ v) + v

        return jax.scipy.sparse.linalg.cg(product, b, tol=tolerance)[0]

    a, b = (jnp.asarray(z, jnp.float32) for z in (0.3 * A[:4, :4], B[:4, 0]))
    assert adjudge.examine(solved, (a, b), seed=0, blame=False).verdict is verdict

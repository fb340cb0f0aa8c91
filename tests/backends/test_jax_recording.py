"""Functions with control flow are recorded, so that JAX does not compile them at every call."""

import numpy as np
import pytest

from adjudge import Status, Verdict, examine, gradgradcheck
from adjudge.engine import backend_named

pytestmark = [pytest.mark.backend("jax"), pytest.mark.usefixtures("x64")]


@pytest.fixture
def backend():
    return backend_named("jax")


@pytest.fixture
def arrays(jnp):
    """The weights and the inputs of a recurrent network of seven steps."""
    random = np.random.default_rng(0)
    return tuple(
        jnp.asarray(random.standard_normal(shape) / 2) for shape in ((4, 4), (4, 3), (7, 3))
    )


@pytest.fixture
def network(jax, jnp):
    """`network(cell, outside)`: it scans over `cell(sums)`; `outside(x)` is computed beside it."""

    def make(cell=jnp.tanh, outside=jnp.sin):
        def f(w, u, inputs):
            def step(state, x):
                state = cell(w @ state + u @ x)
                return state, state * state

            last, squares = jax.lax.scan(step, jnp.zeros(4, w.dtype), 2 * inputs)
            return outside(last), squares.sum()

        return f

    return make


@pytest.fixture
def power(jax):
    """`x ** 8` as three squarings of a loop, of which the first call is compiled.

    The body of the loop is one function for the whole test. Were it another one at every call, JAX
    would compile each evaluation of the functions below that are not recorded.
    """

    def squared(carry, _):
        return carry * carry, None

    def f(x):
        return jax.lax.scan(squared, x, length=3)[0]

    return f


@pytest.fixture
def x(jnp):
    return jnp.asarray([1.25])


def as_flat(f):
    """Returns `f` as a function of one tuple, which returns a tuple."""

    def flat(x):
        result = f(*x)
        return result if isinstance(result, tuple) else (result,)

    return flat


def statuses(report):
    return {finding.status for finding in report.findings}


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


# ---------------------------------------------------------------- what is compiled


def test_a_scan_over_a_closure_is_compiled_once_and_judged_as_if_it_were_compiled_every_time(
    backend, network, arrays, monkeypatch
):
    def judged():
        """Returns the report of a check, and how many programs it compiles."""
        before = backend.compilations()
        report = examine(network(), arrays, check_forward_ad=True, seed=0, blame=False)
        return report, backend.compilations() - before

    recorded, compiled = judged()
    monkeypatch.setattr(type(backend), "recording", lambda _self, _f, _x: None)
    plain, compiled_every_time = judged()

    assert recorded.verdict is Verdict.PASS
    assert recorded.counts["evaluations"] > 10
    assert compiled < recorded.counts["evaluations"] / 2
    assert compiled_every_time >= plain.counts["evaluations"]
    assert recorded.verdict is plain.verdict
    assert recorded.modes == plain.modes
    assert recorded.counts == plain.counts


def test_a_second_derivative_of_a_scan_calls_the_function_a_few_times(
    backend, network, arrays, with_vjp, jnp
):
    calls = []

    def counted(f):
        def called(*x):
            calls.append(1)
            return f(*x)

        return called

    slope = lambda c: lambda x, w: w * (1 - jnp.tanh(x) ** 2) * (1 + (c - 1) * x)  # noqa: E731
    wrong = network(cell=with_vjp(jnp.tanh, slope(1.05)))
    verdicts = {}
    for name, f in (("right", network()), ("wrong", wrong)):
        compiled = backend.compilations()
        report = gradgradcheck(
            counted(f), arrays, mode="full", wrt=0, seed=1, raise_exception=False, blame=False
        )
        verdicts[name] = report.verdict
        assert len(calls) < 10 < report.counts["evaluations"]
        assert backend.compilations() - compiled < report.counts["evaluations"] / 2
        calls.clear()
    assert verdicts == {"right": Verdict.PASS, "wrong": Verdict.FAIL}


@pytest.mark.parametrize("loop", ["while", "cond", "constants"])
def test_other_control_flow_is_judged_as_without_recording(jax, jnp, backend, loop, monkeypatch):
    x, captured = jnp.asarray([1.25, 0.5]), jnp.asarray(3.0)
    functions = {
        "while": lambda x: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c * x * 2, x),
        "cond": lambda x: jax.lax.cond(x[0] > 1, lambda x: x * x, lambda x: -x, x),
        "constants": lambda x: (jax.lax.map(lambda a: a * captured, x), captured, x, None),
    }

    recorded = examine(functions[loop], x, check_forward_ad=True, seed=0, blame=False)
    monkeypatch.setattr(type(backend), "recording", lambda _self, _f, _x: None)
    plain = examine(functions[loop], x, check_forward_ad=True, seed=0, blame=False)

    assert recorded.modes == plain.modes
    assert recorded.modes["F"] is Verdict.PASS
    assert recorded.modes["R"] is (Status.UNSUPPORTED if loop == "while" else Verdict.PASS)
    assert recorded.counts == plain.counts


@pytest.mark.parametrize("wrong", [False, True])
def test_what_the_function_itself_compiles_is_compiled_once(jax, jnp, with_vjp, wrong):
    square = with_vjp(lambda x: x * x, lambda x, w: ((2.02 if wrong else 2.0) * x * w,))
    calls = []

    def f(x):
        calls.append(x)
        bent = jnp.piecewise(x, [x < 0, x >= 0], [lambda z: 2 * z, lambda z: z + z * z])
        return jax.jit(lambda z: jnp.sin(z) * z)(bent) + square(x)

    report = examine(f, jnp.array([0.4, 0.0, -1.2]), modes=["R"], seed=0, blame=False)

    assert report.verdict is (Verdict.FAIL if wrong else Verdict.PASS), report
    assert report.counts["evaluations"] > 20
    assert len(calls) < 12


def test_equal_bodies_share_a_program_from_check_to_check(jax, jnp, backend, network, arrays):
    events = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _seconds, **_about: events.append(event)
    )

    def compiled_for(f):
        """Returns how many programs are compiled for the recording of `f`."""
        events.clear()
        backend.recording(as_flat(f), arrays)(arrays)
        return events.count("/jax/core/compile/backend_compile_duration")

    compiled_for(network())

    assert compiled_for(network()) == 0
    assert compiled_for(network(cell=jnp.cos)) == 1


# ---------------------------------------------------------------- the numbers


def test_a_recording_has_the_values_and_derivatives_of_the_function_to_the_last_bit(
    jax, jnp, backend, network, arrays
):
    f = as_flat(network())
    recorded = backend.recording(f, arrays)
    w = (jnp.arange(1.0, 5.0), jnp.asarray(0.3))

    for scale in (1.0, 1 + 2.0**-20, -0.7):
        x = tuple(scale * array for array in arrays)
        y, pullback = jax.vjp(f, x)
        y_recorded, pullback_recorded = jax.vjp(recorded, x)
        assert same(f(x), recorded(x))
        assert same(y, y_recorded)
        assert same(pullback(w)[0], pullback_recorded(w)[0])
        assert same(jax.jvp(f, (x,), (arrays,))[1], jax.jvp(recorded, (x,), (arrays,))[1])


def test_what_differs_is_not_shared(jax, jnp, backend):
    def recurrence(factor, length, dtype=jnp.float64):
        def f(x):
            start = x[0].astype(dtype)
            return jax.lax.scan(lambda c, _: (c * factor, None), start, length=length)[:1]

        return f

    x = (jnp.asarray(0.5),)
    functions = [
        recurrence(2.0, 3),
        recurrence(3.0, 3),
        recurrence(2.0, 4),
        recurrence(2.0, 3, jnp.float32),
    ]
    results = [backend.recording(f, x)(x)[0] for f in functions]

    assert [float(y) for y in results] == [4.0, 13.5, 8.0, 4.0]
    assert [str(y.dtype) for y in results] == ["float64", "float64", "float64", "float32"]


def test_the_sign_of_a_zero_tells_two_bodies_apart(jax, jnp, backend):
    def division(zero):
        def f(x):
            return (jax.lax.scan(lambda c, _: (c, x[0] / jnp.float64(zero)), x[0], length=1)[1],)

        return f

    x = (jnp.asarray(0.5),)

    assert float(backend.recording(division(0.0), x)(x)[0][0]) == np.inf
    assert float(backend.recording(division(-0.0), x)(x)[0][0]) == -np.inf


def test_captured_arrays_belong_to_the_function_and_not_to_the_program(jax, jnp, backend):
    def scaled_by(factor):
        captured = jnp.asarray(factor)

        def f(x):
            return (jax.lax.scan(lambda c, _: (c * captured, None), x[0], length=2)[0],)

        return f

    x = (jnp.asarray(0.5),)

    assert float(backend.recording(scaled_by(2.0), x)(x)[0]) == 2.0
    assert float(backend.recording(scaled_by(3.0), x)(x)[0]) == 4.5


# ---------------------------------------------------------------- wrong rules


def test_a_wrong_rule_in_the_body_of_a_scan_fails_and_a_right_one_passes(
    jnp, network, arrays, with_vjp
):
    def cell(factor):
        return with_vjp(jnp.tanh, lambda x, w: factor * w * (1 - jnp.tanh(x) ** 2))

    right = examine(network(cell=cell(1.0)), arrays, seed=0, blame=False)
    wrong = examine(network(cell=cell(1.001)), arrays, seed=0, blame=False)

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


def test_a_wrong_rule_beside_a_scan_fails_and_a_right_one_passes(jnp, network, arrays, with_vjp):
    def outside(factor):
        return with_vjp(jnp.sin, lambda x, w: factor * w * jnp.cos(x))

    right = examine(network(outside=outside(1.0)), arrays, seed=0, blame=False)
    wrong = examine(network(outside=outside(1.001)), arrays, seed=0, blame=False)

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


# ---------------------------------------------------------------- what a recording would hide


def test_a_function_that_draws_random_numbers_is_found(power, x):
    numbers = iter(np.random.default_rng(0).standard_normal, None)
    report = examine(lambda x: power(x) + 1e-9 * next(numbers), x, seed=0, blame=False)

    assert Status.NONDETERMINISTIC in statuses(report)
    assert not examine(power, x, seed=0, blame=False).findings


def test_a_function_whose_value_depends_on_its_calls_is_found(power, x):
    calls = []

    def f(x):
        calls.append(1)
        return power(x) + len(calls) * 1e-9

    assert Status.NONDETERMINISTIC in statuses(examine(f, x, seed=0, blame=False))


def test_a_function_without_control_flow_is_called_once_for_each_evaluation(jnp):
    calls = []

    def f(x):
        calls.append(1)
        return jnp.sin(x) * x

    def called(x):
        """Returns how often a check calls `f`, and the evaluations that it counts."""
        calls.clear()
        counts = examine(f, (x,), check_forward_ad=True, seed=0, blame=False).counts
        return len(calls), counts["evaluations"]

    first, evaluations = called(jnp.arange(5.0))

    assert first <= evaluations + 1  # JAX 0.4 does not tell what it has compiled
    assert called(jnp.arange(5.0)) == (evaluations, evaluations)


def test_a_function_that_branches_on_values_is_checked_as_ever(power, x):
    def f(x):
        y = power(x)
        return y if y[0] > 0 else -y

    report = examine(f, x, check_forward_ad=True, seed=0, blame=False)

    assert report.verdict is Verdict.PASS
    assert not report.findings


def test_a_wrong_derivative_of_a_function_that_cannot_be_traced_fails(x, with_vjp, jnp):
    sine = with_vjp(jnp.sin, lambda x, w: 1.05 * w * jnp.cos(x))

    report = examine(lambda x: sine(x) if x[0] > -9 else x, x, seed=0, blame=False)

    assert report.verdict is Verdict.FAIL


def test_a_function_that_is_another_one_under_a_tracer_is_not_recorded(jax, power, x):
    def f(x):
        y = power(x)
        return 2 * y if isinstance(y, jax.core.Tracer) else y

    assert Status.INCONSISTENT in statuses(examine(f, x, seed=0, blame=False))


def test_an_exception_of_a_function_comes_through(power, x):
    def f(z):
        if z[0] != x[0]:
            raise ValueError("only at x")
        return power(z)

    with pytest.raises(ValueError, match="only at x") as raised:
        examine(f, x, seed=0, blame=False)

    assert any("of the function" in note for note in raised.value.__notes__)


def test_an_exception_in_a_recording_has_the_same_note(backend, power, x, monkeypatch):
    def recording(_self, _f, at):
        def recorded(z):
            if z[0] != at[0][0]:
                raise ValueError("only at x")
            return (power(*z),)

        return recorded

    monkeypatch.setattr(type(backend), "recording", recording)

    with pytest.raises(ValueError, match="only at x") as raised:
        examine(power, x, seed=0, blame=False)

    assert any("of the function" in note for note in raised.value.__notes__)


def test_a_function_with_effects_is_not_recorded(jax, backend, network, arrays):
    seen = []

    def f(x):
        jax.debug.callback(lambda total: seen.append(float(total)), x[0].sum())
        return network()(*x)

    def calls_back(x):
        last, total = network()(*x)
        return last, jax.pure_callback(lambda one: one, total, total)

    assert backend.recording(f, arrays) is None
    assert backend.recording(calls_back, arrays) is None
    assert backend.recording(as_flat(network()), arrays) is not None


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.01, Verdict.FAIL)])
@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_a_rule_that_reads_what_the_function_has_computed_is_judged(
    jax, jnp, kind, factor, verdict
):
    """As that of an implicit function does. In a recording that stands for no numbers."""

    def f(x):
        scale = jnp.sum(jnp.asarray([0.6, 1.1])) * 2

        def root(t):
            loop = jax.lax.while_loop(
                lambda k: k[0] < 3, lambda k: (k[0] + 1, k[1] * scale), (0, jnp.sin(t))
            )
            return loop[1]

        def slope(t):
            return factor * jnp.cos(t) * scale**3

        if kind == "vjp":
            solve = jax.custom_vjp(root)
            solve.defvjp(lambda t: (root(t), t), lambda t, w: (w * slope(t),))
        else:
            solve = jax.custom_jvp(root)
            solve.defjvp(lambda t, v: (root(*t), v[0] * slope(t[0])))
        return solve(x)

    modes = ["R", "F"] if kind == "jvp" else ["R"]
    report = examine(f, jnp.asarray([0.3, 0.9]), modes=modes, seed=0)

    assert report.modes == dict.fromkeys(modes, verdict), str(report)

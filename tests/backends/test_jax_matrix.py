"""Every composition of modes in JAX, eager and under jit, and the rule that is accused."""

import pytest

from adjudge import Status, Verdict, examine, gradcheck

pytestmark = [pytest.mark.backend("jax"), pytest.mark.usefixtures("x64")]

SECOND = ["R", "F", "RR", "FR", "RF", "FF"]


@pytest.fixture
def x(jnp):
    return jnp.asarray([0.3, -1.2, 2.5, 0.8, -0.4])


@pytest.fixture
def cube(jax):
    """`cube(jvp)`: `x³` with the rule `jvp(x, v)` for its tangent."""

    def make(jvp):
        f = jax.custom_jvp(lambda x: x**3)
        f.defjvp(lambda x, v: (x[0] ** 3, jvp(x[0], v[0])))
        return f

    return make


def wrong_in(outcomes):
    return [mode for mode, outcome in outcomes.items() if outcome is Verdict.FAIL]


def test_right_rules_pass_in_every_mode_and_way(cube, x):
    report = examine(cube(lambda x, v: 3 * x**2 * v), x, order=2, seed=0)

    assert report, report
    assert list(report.modes) == SECOND
    assert list(report.ways) == ["eager", "jit"]
    assert {*report.ways["eager"].values(), *report.ways["jit"].values()} == {Verdict.PASS}


@pytest.mark.parametrize(
    ("factor", "wrong", "sentence"),
    [
        (1.0001, ["R", "F"], "the JVP and the VJP rule are at fault, or the one that both are"),
        (-1.0, ["R", "F"], "the JVP and the VJP rule are at fault, or the one that both are"),
    ],
)
def test_a_wrong_rule_is_wrong_in_both_modes_made_from_it(cube, x, factor, wrong, sentence):
    report = examine(cube(lambda x, v: factor * 3 * x**2 * v), x, order=2, seed=0)

    assert wrong_in(report.modes) == wrong
    assert sentence in str(report)


def test_a_rule_that_cannot_be_differentiated_is_wrong_from_the_second_order_on(jax, cube, x):
    stop = jax.lax.stop_gradient

    report = examine(cube(lambda x, v: 3 * stop(x) ** 2 * v), x, order=2, seed=0)

    assert wrong_in(report.modes) == ["RR", "FR", "RF", "FF"]
    assert "the derivatives of both rules are at fault" in str(report)


def test_a_vjp_rule_alone_is_accused_and_forward_mode_is_unsupported(jnp, with_vjp, x):
    right, wrong = (with_vjp(jnp.sin, lambda x, w, s=s: (s * w * jnp.cos(x),)) for s in (1, 1.01))

    good, bad = (examine(f, x, order=2, seed=0) for f in (right, wrong))

    assert good.verdict is Verdict.INCONCLUSIVE
    assert wrong_in(good.modes) == []
    assert wrong_in(bad.modes) == ["R"]
    assert {good.modes[mode] for mode in ("F", "RF", "FF")} == {Status.UNSUPPORTED}
    assert "the VJP rule is at fault" in str(bad)
    assert gradcheck(right, x, modes=["R", "RR", "FR"], seed=0)


@pytest.fixture
def compiling():
    """`compiling(compile)`: the engine, with another compiler."""
    from adjudge_jax import JaxBackend

    def make(compile):
        return type(
            "Compiling", (JaxBackend,), {"compile": lambda self, function: compile(function)}
        )()

    return make


def test_what_differs_under_jit_is_reported_apart(compiling, jax, jnp, x):
    backend = compiling(lambda f: jax.jit(lambda x: f(x) + 0 * x + 1e-5 * jnp.cos(x)))

    report = examine(jnp.sin, x, order=1, backend=backend, seed=0)

    assert set(report.ways["eager"].values()) == {Verdict.PASS}
    assert report.verdict is Verdict.FAIL, report
    assert "the function has another value under jit" in str(report)
    assert {f.way for f in report.findings if f.verdict is Verdict.FAIL} == {"jit"}
    assert examine(jnp.sin, x, order=1, backend=compiling(jax.jit), seed=0)


def test_compilation_can_be_left_out_and_asked_for_without_an_order(jnp, x):
    assert list(examine(jnp.sin, x, order=1, compile=False, seed=0).ways) == ["eager"]
    report = examine(jnp.sin, x, modes=["R"], compile=True, seed=0)
    assert report.ways == {"eager": {"R": Verdict.PASS}, "jit": {"R": Verdict.PASS}}


def test_arguments_that_are_no_arrays_stay_as_they_are_under_jit(jnp, x):
    def f(x, options, *, power):
        return jnp.sin(x) ** power if options["deep"] else x

    report = examine(f, (x, {"deep": True}), kwargs={"power": 2}, order=1, seed=0)

    assert report, report
    assert set(report.ways["jit"].values()) == {Verdict.PASS}


def test_a_function_that_cannot_be_compiled_is_judged_as_it_is(jnp, x):
    def f(x):
        return jnp.sin(x) if float(x[0]) > 0 else x  # numbers decide

    report = examine(f, x, modes=["R"], compile=None, order=1, seed=0)

    assert set(report.ways["jit"].values()) == {Status.UNSUPPORTED}
    assert "ConcretizationTypeError" in str(report)


def test_third_order_has_all_fourteen_words(jnp, x):
    report = examine(jnp.sin, x[:2], order=3, compile=False, seed=0)

    assert report, report
    assert len(report.modes) == 14


def test_forward_over_forward_alone_is_judged_by_differences(cube, x):
    right = cube(lambda x, v: 3 * x**2 * v)

    assert examine(right, x, modes=["F", "FF"], seed=0)
    assert examine(right, x, modes=["FF", "RF"], seed=0)


def test_a_function_of_one_number_passes_in_second_order(jnp):
    report = examine(lambda x: jnp.sin(x) * x, jnp.asarray(0.75), modes=SECOND, seed=0)

    assert report, report
    assert report.modes == dict.fromkeys(SECOND, Verdict.PASS)


@pytest.mark.parametrize("order", [1, 2])
def test_a_function_that_does_not_run_under_jit_is_right_in_the_ways_in_which_it_runs(
    double, order
):
    def branches(x):
        return x * x if bool(x.sum() > -10) else x

    report = examine(branches, double([0.3, -0.7]), order=order)

    assert report.verdict is Verdict.PASS
    assert set(report.ways["jit"].values()) == {Status.UNSUPPORTED}
    with pytest.raises(TypeError, match="boolean"):  # asked for by name, it is not passed over
        examine(branches, double([0.3, -0.7]), order=order, compile=True)

"""Which rule of a program is wrong, and where it stands: programs with a rule that is planted."""

import importlib
import math
import threading
import warnings
from functools import partial

import numpy as np
import programs
import pytest
from scenarios import kept_tanh, long, on_both, seeds, torch_function

import adjudge
from adjudge import Verdict
from adjudge.check import problem_of
from adjudge.engine import AutodiffBackend, WrappedBackend, backend_named
from adjudge.limits import limited
from adjudge.trace.steps import right_beside

THIS = __file__

FEW = {
    "jax": ("mlp", "gnn", "contrastive"),
    "torch": tuple(one.__name__ for one in programs.PROGRAMS if one is not programs.leapfrog),
}
"""JAX compiles each operation of a program, and one program has 1920 steps, which takes seconds."""

LONG = {
    "jax": ("gnn", "mlp"),
    "torch": ("ode", "burgers", "lstm"),
}
"""Programs that take longest: their rules and mistakes are in others as well."""


def marks(engine, program):
    return [pytest.mark.long] if program.__name__ in LONG[engine] else []


def program_of(engine, program, wrong="", mistake=""):
    rules = programs.rules(engine, wrong, mistake)

    def f(*x):
        return program(rules, *x)

    return f


def lines(report):
    return {judged.step.rule_place.line for judged in report.at_fault}


FIRST = {programs.RULES[program][0] for program in programs.PROGRAMS}
PLANTED = [
    pytest.param(
        engine,
        program,
        rule,
        mistake,
        id=f"{engine}-{program.__name__}-{rule}-{mistake}",
        marks=marks(engine, program),
    )
    for engine in ("torch", "jax")
    for k, program in enumerate(programs.PROGRAMS)
    for j, rule in enumerate(programs.RULES[program][:2])
    if j == 0 or (engine == "torch" and rule not in FIRST)
    for mistake in [programs.MISTAKES[(k + j) % len(programs.MISTAKES)]]
    if program.__name__ in FEW[engine]
]


@pytest.fixture
def wide():
    """JAX in 64-bit mode."""
    if importlib.util.find_spec("jax") is None:
        yield
        return
    with backend_named("jax").environment.widening():
        yield


@pytest.mark.parametrize(("engine", "program", "rule", "mistake"), PLANTED)
def test_a_planted_rule_is_named_and_no_right_one(engine, program, rule, mistake, wide):
    pytest.importorskip(engine)
    f = program_of(engine, program, rule, mistake)

    report = adjudge.blame(f, programs.inputs(engine, program, 0), seed=0)

    assert report.verdict is Verdict.FAIL
    assert lines(report) == {programs.line_of(engine, rule)}
    assert report.first.step.place.file == programs.__file__
    assert report.explained
    assert not report.between
    assert not report.outside


@pytest.mark.parametrize(
    ("engine", "program", "rule"),
    [
        ("torch", programs.mlp, "silu"),
        ("torch", programs.gnn, "softmax"),
        long("jax", programs.mlp, "silu"),
    ],
)
def test_a_rule_is_named_where_values_are_computed_again(engine, program, rule, wide):
    pytest.importorskip(engine)
    x = programs.inputs(engine, program, 0)

    with limited(recorded_numbers=32):
        wrong = adjudge.blame(program_of(engine, program, rule, "factor"), x, seed=0)
        right = adjudge.blame(program_of(engine, program), x, seed=0)

    assert lines(wrong) == {programs.line_of(engine, rule)}
    assert wrong.explained
    assert not right.at_fault


RIGHT = [
    pytest.param(engine, program, id=f"{engine}-{program.__name__}", marks=marks(engine, program))
    for engine in ("torch", "jax")
    for program in programs.PROGRAMS
    if program.__name__ in FEW[engine]
]


@pytest.mark.parametrize(("engine", "program"), RIGHT)
def test_no_rule_of_a_right_program_is_blamed(engine, program, wide):
    pytest.importorskip(engine)

    report = adjudge.blame(program_of(engine, program), programs.inputs(engine, program, 0), seed=0)

    assert report, str(report)
    assert (report.at_fault, report.explained) == ([], None)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_rule_is_named_whatever_the_seed(seed):
    pytest.importorskip("torch")
    program, mistake = programs.transformer, programs.MISTAKES[seed % len(programs.MISTAKES)]
    f = program_of("torch", program, "normalize", mistake)

    report = adjudge.blame(f, programs.inputs("torch", program, seed), seed=seed)

    assert lines(report) == {programs.line_of("torch", "normalize")}
    assert report.explained


def test_a_rule_whose_second_derivative_alone_is_wrong_is_named():
    program, rule = programs.experts, "softmax"
    engine = "torch"  # JAX compiles second derivatives for a minute
    pytest.importorskip(engine)
    f, x = program_of(engine, program, rule, programs.SECOND), programs.inputs(engine, program, 0)

    report = adjudge.blame(f, x, modes=["RR"], seed=0)

    assert lines(report) == {programs.line_of(engine, rule)}
    assert adjudge.blame(f, x, seed=0)
    assert adjudge.blame(program_of(engine, program), x, modes=["RR"], seed=0)


@on_both
def test_a_cut_is_named_where_it_matters_and_not_where_it_is_meant(adjudge_backend, wide):
    xp, name = adjudge_backend.xp, adjudge_backend.name
    cut = {
        "torch": lambda y: y.detach(),
        "jax": lambda y: importlib.import_module("jax").lax.stop_gradient(y),
    }[name]
    x = (xp.asarray([0.3, 0.7, 0.2], dtype=xp.float64),)

    def shifted(x):
        shift = cut(xp.max(x))
        return xp.log(xp.sum(xp.exp(x - shift))) + shift

    meant = adjudge.blame(shifted, x, seed=0, every=True)
    wrong = adjudge.blame(lambda x: cut(xp.sin(x)) * x, x, seed=0)

    assert meant, str(meant)
    assert [one.verdict for one in meant.judged].count(Verdict.FAIL) == 1
    assert "wrong alone, and without effect" in str(meant)
    assert [one.step.name for one in wrong.at_fault] in (["torch.Tensor.detach"], ["stop_gradient"])
    assert wrong.headline.startswith("FAIL: the derivative ends in ")
    assert wrong.explained


def cuts_of(backend):
    """The ways of an engine to end a derivative."""
    if backend.name == "torch":
        return [importlib.import_module("torch").detach, lambda y: y.data]
    return [importlib.import_module("jax").lax.stop_gradient]


@on_both
@pytest.mark.parametrize("terms", [2, 3])
def test_cuts_that_cancel_are_not_named_in_a_right_program(adjudge_backend, wide, terms):
    xp = adjudge_backend.xp
    x = (xp.asarray([[0.3, 0.7, 0.2], [0.1, -0.4, 0.9]], dtype=xp.float64),)
    cuts = cuts_of(adjudge_backend)

    def right(x):
        h = x * x
        one, two = cuts[0](h), cuts[-1](h)
        y = xp.log(xp.sum(xp.exp(h - xp.max(one, axis=1, keepdims=True)), axis=1))
        if terms == 3:  # none of the three cancels without the others
            y = y - xp.max(cuts[0](h), axis=1)
            return y + 2 * xp.max(two, axis=1)
        return y + xp.max(two, axis=1)

    def wrong(x):
        return right(x) + xp.sum(
            cuts[0](xp.sin(x)) * x,
            axis=1,
        )

    line = wrong.__code__.co_firstlineno + 2
    report, beside = (adjudge.blame(f, x, seed=0) for f in (right, wrong))

    assert report, str(report)
    assert adjudge.examine(wrong, x, seed=0).faults[0].line == line
    assert beside.first.cuts
    assert beside.first.step.place == (THIS, line)
    assert beside.explained


def rounded_to_integers(y):
    return (65536 * y).long() / 65536 if hasattr(y, "long") else (65536 * y).astype(int) / 65536


@on_both
def test_a_step_that_makes_integers_is_named_where_the_derivative_ends_there(adjudge_backend, wide):
    xp = adjudge_backend.xp
    x = (xp.asarray([0.3, 0.7, 0.2], dtype=xp.float64),)

    def f(x):
        return xp.sin(rounded_to_integers(xp.exp(x)))

    def apart(x):  # the derivative ends in another step, and that explains all
        return cuts_of(adjudge_backend)[0](xp.exp(x))[xp.argmax(x)]

    report, explained = (adjudge.blame(g, x, seed=0) for g in (f, apart))

    (end,) = report.dead_ends
    assert report.steps[end].place == (THIS, rounded_to_integers.__code__.co_firstlineno + 1)
    assert "the derivative ends in " in str(report)
    assert "makes integers, indices or truth values" in str(report)
    if not report.whole:  # else the staircase is flat as far as the check looks
        assert report.headline.startswith("FAIL: the derivative ends in ")
        assert adjudge.examine(f, x, seed=0).faults[0].line == report.steps[end].place.line
    assert explained.explained
    assert (list(explained.dead_ends), len(explained.at_fault)) == ([], 1)
    assert not adjudge.blame(lambda x: xp.sin(x)[xp.argmax(x)], x, seed=0).dead_ends


@on_both
def test_a_rule_is_named_whose_error_a_cut_hides(adjudge_backend, wide):
    xp, name = adjudge_backend.xp, adjudge_backend.name
    wrong, cut = programs.rules(name, "tanh", "factor"), cuts_of(adjudge_backend)[0]

    def f(x):
        h = xp.exp(x)
        return wrong.tanh(x) + cut(h) - cut(h)

    report = adjudge.blame(f, (xp.asarray([0.3, 0.7], dtype=xp.float64),), seed=0)

    assert lines(report) == {programs.line_of(name, "tanh")}
    assert len(report.at_fault) == 1


@on_both
def test_two_rules_whose_errors_cancel_are_both_named(adjudge_backend, wide):
    name, xp = adjudge_backend.name, adjudge_backend.xp
    more, less = (programs.rules(name, "tanh", one).tanh for one in ("factor", "factor"))

    def f(x):
        return xp.sum(more(x)) - xp.sum(less(x)) + xp.sum(x)

    report = adjudge.blame(f, (xp.asarray([0.3, 0.7], dtype=xp.float64),), seed=0)

    assert report.whole.verdict is Verdict.PASS
    assert report.verdict is Verdict.FAIL
    assert lines(report) == {programs.line_of(name, "tanh")}
    assert not report


@on_both
def test_an_engine_that_records_nothing_is_judged_as_a_whole(adjudge_backend, wide):
    class Unrecorded(WrappedBackend):
        trace = AutodiffBackend.trace

    xp, rules = adjudge_backend.xp, programs.rules(adjudge_backend.name, "tanh", "sign")
    x = (xp.asarray([0.3, 0.7], dtype=xp.float64),)

    report = adjudge.blame(rules.tanh, x, backend=Unrecorded(backend_named(adjudge_backend.name)))

    assert report.verdict is Verdict.FAIL
    assert report.headline.startswith("FAIL: the function was judged as a whole in ")
    assert "recording what a function does (trace) is not supported" in str(report)


@on_both
def test_a_rule_is_named_in_single_precision(adjudge_backend):
    xp, name = adjudge_backend.xp, adjudge_backend.name
    x = (xp.asarray([0.3, 0.7, -0.2], dtype=xp.float32),)
    wrong, right = programs.rules(name, "silu", "1e-3"), programs.rules(name)

    report = adjudge.blame(lambda x: wrong.silu(right.tanh(x)) * x, x, seed=0)

    assert lines(report) == {programs.line_of(name, "silu")}
    assert report.explained


@on_both
def test_a_rule_is_named_in_sixteen_bits(adjudge_backend):
    xp, name = adjudge_backend.xp, adjudge_backend.name
    x = (xp.asarray([0.3, 0.7, -0.2], dtype=xp.bfloat16),)
    wrong, right = programs.rules(name, "sigmoid", "1e-3"), programs.rules(name)

    report = adjudge.blame(lambda x: wrong.sigmoid(right.tanh(x)) * x, x, seed=0)

    assert lines(report) == {programs.line_of(name, "sigmoid")}
    assert report.explained
    assert not adjudge.blame(lambda x: right.sigmoid(right.tanh(x)) * x, x, seed=0).at_fault


@on_both
def test_a_rule_whose_derivative_raises_is_named(adjudge_backend, wide):
    name, xp = adjudge_backend.name, adjudge_backend.xp

    def backward(x, w):
        raise ValueError("not written yet")

    make = programs.torch_rule if name == "torch" else programs.jax_rule
    rule = make(xp.sin, backward)
    x = (xp.asarray([0.3, 0.7], dtype=xp.float64),)

    report = adjudge.blame(lambda x: xp.exp(rule(xp.tanh(x))), x, seed=0)

    assert report.verdict is Verdict.FAIL
    assert lines(report) == {backward.__code__.co_firstlineno}
    assert "the derivative raises ValueError: not written yet" in str(report)
    with pytest.raises(ZeroDivisionError):  # what the function itself raises comes through
        adjudge.blame(lambda x: x / (1 // 0), x)


def test_an_array_that_a_function_of_jax_closes_over_is_listed_as_not_judged(wide):
    jax = pytest.importorskip("jax")
    product = programs.rules("jax", "product", "missing term").product  # the gradient of b alone
    x, weight = jax.numpy.ones((2, 4)) / 3, jax.numpy.ones((4, 3)) / 5

    closes = adjudge.blame(lambda x: product(x, weight), (x,), seed=0)
    takes = adjudge.blame(lambda x, weight: product(x, weight), (x, weight), seed=0)

    assert closes.closed_over == [(0, 1)]
    assert "for operand 1, an array of shape (4, 3) that the function closes over" in str(closes)
    assert takes.closed_over == []
    assert lines(takes) == {programs.line_of("jax", "product")}


def test_a_rule_in_a_scan_is_named_with_its_calls(wide):
    jax = pytest.importorskip("jax")
    rules = programs.rules("jax", "tanh", "factor")

    def f(x):
        return jax.lax.scan(lambda h, step: (rules.tanh(h + step), jax.nn.softmax(h)), x[0], x)

    report = adjudge.blame(f, (programs.inputs("jax", programs.ode, 0)[1],), seed=0)

    assert len(report.first.calls) == 3
    assert report.first.called == "called 3 times, wrong in all"
    assert lines(report) == {programs.line_of("jax", "tanh")}


@pytest.mark.parametrize("wrong_at", [None, "each", 3.0])
def test_a_rule_in_a_long_scan_is_named_wherever_it_is_wrong(wide, monkeypatch, wrong_at):
    jax = pytest.importorskip("jax")
    np = jax.numpy
    monkeypatch.setattr("adjudge_jax.tracing.Walk.most_steps", 10)
    monkeypatch.setattr("adjudge_jax.tracing.Walk.chosen", 2)

    @jax.custom_vjp
    def turned(x, k):
        return np.sin(x)

    def backward(kept, w):
        x, k = kept
        wrong = 1.0 if wrong_at is None else np.where((wrong_at == "each") | (k == wrong_at), 2, 1)
        return wrong * w * np.cos(x), None

    turned.defvjp(lambda x, k: (np.sin(x), (x, k)), backward)

    def f(x):
        return jax.lax.scan(lambda h, k: (turned(h, k) + h * h, None), x, np.arange(12.0))[0]

    report = adjudge.blame(f, (np.array([0.2, 0.3]),), seed=0)

    assert sum(step.iterations for step in report.steps) == 10
    if wrong_at is None:
        assert report
        assert report.at_fault == []
    else:
        (found,) = report.at_fault
        assert (found.fault.rule, found.fault.file) == ("backward", THIS)
        assert found.fault.line == backward.__code__.co_firstlineno
        assert report.explained
        assert report.headline.startswith(f"FAIL: the rule at fault: {found.name}")
        assert found.step.name == ("turned" if wrong_at == "each" else "scan")


def test_a_function_that_jax_cannot_trace_is_judged_as_a_whole(wide):
    jnp = pytest.importorskip("jax.numpy")

    report = adjudge.blame(lambda x: x * 2 if x[0] > 0 else x, (jnp.ones(3),))

    assert report
    assert "nothing was recorded: recording what this function does (trace)" in str(report)


def test_a_rule_of_custom_gradient_has_the_line_of_the_users_function(wide):
    jax = pytest.importorskip("jax")

    def inner(x):
        return jax.numpy.sin(x)

    def sine(x):
        return inner(x), lambda w: w

    rule = jax.custom_gradient(sine)
    report = adjudge.blame(lambda x: rule(jax.nn.relu(x)) * x, (jax.numpy.ones(3),), seed=0)

    assert report.first.name.startswith("the vjp of sine (")
    assert report.first.step.rule_place == (THIS, sine.__code__.co_firstlineno + 1)
    assert report.first.step.custom
    assert [one.name for one in report.steps if one.custom] == ["sine"]


@pytest.mark.parametrize(("stopped", "verdict"), [(False, "INCONCLUSIVE"), (True, "FAIL")])
def test_a_step_without_a_derivative_is_named_where_nothing_is_wrong(stopped, verdict, wide):
    jax = pytest.importorskip("jax")

    def f(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        y = jax.lax.stop_gradient(x) if stopped else x
        return jax.pure_callback(lambda y: y * y, shape, y) * jax.numpy.sin(x)

    report = adjudge.blame(f, (jax.numpy.asarray([0.3, 0.7]),), seed=0)

    assert str(report.verdict) == verdict
    line = f.__code__.co_firstlineno + 3
    assert report.headline.startswith(f"{verdict}: the derivative ends in pure_callback at ")
    assert report.headline.endswith(f"test_blame.py:{line}")
    assert report.explained is (True if stopped else None)


@pytest.mark.parametrize("seed", seeds(10))
def test_the_largest_score_of_a_softmax_is_not_accused_beside_a_wrong_rule(seed, wide):
    """It is stopped on purpose, and the error is too small to show along a direction."""
    jax = pytest.importorskip("jax")
    random = np.random.default_rng(0)
    shapes = {(32, 64): 0.2, (64, 20): 0.2, (12, 32): 1.0}
    inputs = tuple([jax.numpy.asarray(k * random.normal(size=n)) for n, k in shapes.items()])

    @jax.custom_vjp
    def same(w):
        return w

    same.defvjp(lambda w: (w, None), lambda _, g: (g.at[1, 2].multiply(1 + 1e-4),))

    def f(w, v, x):
        return jax.nn.logsumexp(jax.nn.gelu(x @ same(w)) @ v, -1)

    report = adjudge.examine(f, inputs, seed=seed)

    assert report.verdict is Verdict.FAIL
    assert [(one.step, one.cuts) for one in report.faults] == [("same", False)]


def test_a_step_that_was_traced_for_single_precision_is_not_run_in_double(capfd):
    """XLA would say on stderr that it read past the end of an array."""
    jax = pytest.importorskip("jax")

    @jax.custom_vjp
    def relu(x):
        return jax.nn.relu(x)

    relu.defvjp(lambda x: (relu(x), x), lambda x, w: (jax.numpy.where(x > 0, w, w / 100),))

    def f(x):
        return relu(x) + jax.nn.relu(x)

    x = jax.numpy.asarray([-1.0, 0.5, -0.3, 2.0], jax.numpy.float32)
    with jax.enable_x64(False):
        report = adjudge.examine(f, (x,), seed=0)

    assert [one.step for one in report.faults] == ["relu"]
    assert not capfd.readouterr().err


def test_what_runs_in_parts_on_devices_is_one_step(wide):
    jax = pytest.importorskip("jax")
    if not hasattr(jax, "shard_map"):
        pytest.skip("this JAX has no jax.shard_map")
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    part = jax.sharding.PartitionSpec("i")

    def blamed(tanh):

        def f(x):
            return tanh(x) * jax.lax.axis_index("i") + tanh(x)

        # Operation by operation it takes seconds.
        mapped = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=part, out_specs=part))
        x = (jax.numpy.asarray([[0.3], [0.7]]),)
        return adjudge.blame(lambda x: 2 * mapped(x), x, seed=0)

    wrong = blamed(programs.rules("jax", "tanh", "factor").tanh)
    right = blamed(programs.rules("jax").tanh)

    assert [one.step.name for one in wrong.at_fault] == ["shard_map"]
    assert wrong.first.step.place.file == THIS
    assert wrong.explained
    assert right, str(right)


# ---------------------------------------------------------------- PyTorch alone


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_a_wrong_second_derivative_of_pytorch_is_found_in_a_model(torch):
    model = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).double()
    x = torch.rand(1, 2, 4, dtype=torch.float64)

    report = adjudge.blame(model, (x,), modes=["RF"], seed=0)

    assert [one.step.name for one in report.at_fault] == ["torch.nn.functional.layer_norm"]
    assert report.first.step.module == "norm1"
    assert len(report.first.calls) == 2


def lower(torch, x):
    return x.sin().tril() + 2 * torch.eye(3, dtype=torch.float64)


def positive(torch, x):
    return x @ x.mT + 3 * torch.eye(3, dtype=torch.float64)


def inverse(torch, x):
    return torch.cholesky_inverse(lower(torch, x))


def eigenvectors(torch, x):
    return torch.linalg.eigh(positive(torch, x))[1] ** 2


@pytest.mark.parametrize(
    ("mode", "f", "name", "seed"),
    [
        ("F", inverse, "torch.cholesky_inverse", 0),
        *(long("F", inverse, "torch.cholesky_inverse", seed) for seed in (1, 2)),
        long("RF", eigenvectors, "torch.linalg.eigh", 0),
    ],
)
def test_a_rule_that_is_right_in_reverse_mode_for_what_it_gets_is_judged_in_other_modes_for_it(
    torch, mode, f, name, seed
):
    torch.manual_seed(seed)

    report = adjudge.blame(
        lambda x: f(torch, x).tanh(), (torch.randn(3, 3).double(),), modes=[mode], seed=seed
    )

    assert report.verdict is Verdict.FAIL
    assert [one.step.name for one in report.at_fault] == [name]


@pytest.mark.parametrize("seed", range(3))
def test_a_rule_that_is_right_in_forward_mode_for_what_it_gets_is_not_blamed(torch, seed):
    wrong = torch_function(lambda x: x.sin(), lambda x, w: w * x.cos(), lambda x, v: -v * x.cos())
    torch.manual_seed(seed)

    def f(x):
        return wrong(torch.linalg.cholesky(positive(torch, x)))

    report = adjudge.blame(f, (torch.randn(3, 3).double(),), modes=["F"], seed=seed)

    cholesky = next(one for one in report.judged if one.step.name == "torch.linalg.cholesky")
    assert cholesky.report.modes["F"] is Verdict.FAIL
    assert [one.step.name for one in report.at_fault] == ["Rule.apply"]
    assert report.first.fault.rule == "Rule.jvp"


def test_a_parameter_that_is_closed_over_is_judged_in_its_rule(torch):
    weight = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    rules = programs.rules("torch", "product", "missing term")  # the gradient of b alone

    report = adjudge.blame(
        lambda x: rules.product(x, weight), (torch.rand(2, 4, dtype=torch.float64),), captured=False
    )

    assert report.whole.verdict is Verdict.PASS
    assert lines(report) == {programs.line_of("torch", "product")}


@pytest.fixture
def raises(torch):
    """A function whose derivative raises."""

    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + 1

        @staticmethod
        def backward(ctx, w):
            raise RuntimeError("there is none")

    return Raises.apply


def test_a_rule_that_raises_and_is_not_needed_does_not_stand_in_the_way(torch, raises):
    rules = programs.rules("torch", "tanh", "factor")

    def f(x):
        return rules.tanh(x) + 0 * raises(x.detach())

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    assert lines(report) == {programs.line_of("torch", "tanh")}
    assert report.explained
    assert list(report.opaque.values()) == ["cannot be judged: there is none"]


def test_a_rule_that_raises_in_a_function_that_draws_is_named(torch, raises):
    def f(x):
        return torch.nn.functional.dropout(raises(x), 0.5)

    report = adjudge.blame(f, (torch.rand(8, dtype=torch.float64),), seed=0)

    assert report.first.name.startswith("Raises.backward (")
    assert "the derivative raises RuntimeError: there is none" in str(report)


def test_a_rule_is_named_under_autocast(torch):
    rules = programs.rules("torch", "tanh", "factor")

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return rules.tanh(x @ x.mT)

    report = adjudge.blame(f, (torch.rand(3, 3),), seed=0)

    assert lines(report) == {programs.line_of("torch", "tanh")}
    assert report.opaque == {}


def test_a_custom_operator_has_the_line_of_its_backward_pass(torch):
    @torch.library.custom_op("adjudge_blame::square", mutates_args=())
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    def backward(ctx, w):
        return w * ctx.saved_tensors[0]

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    square.register_autograd(backward, setup_context=setup)

    report = adjudge.blame(
        lambda x: square(x.sin()).sum(), (torch.rand(3, dtype=torch.float64),), seed=0
    )

    assert lines(report) == {backward.__code__.co_firstlineno}


def test_an_operator_of_a_library_has_the_line_of_its_backward_pass(torch):
    with torch.library._scoped_library("adjudge_blame", "FRAGMENT") as library:
        library.define("sine(Tensor x) -> Tensor")
        library.impl("sine", lambda x: x.sin(), "CompositeExplicitAutograd")

        def backward(ctx, w):
            return factor * w * ctx.saved_tensors[0].cos()

        def setup(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        name = "adjudge_blame::sine"
        torch.library.register_autograd(name, backward, setup_context=setup, lib=library)
        sine, x = torch.ops.adjudge_blame.sine, (torch.rand(3, dtype=torch.float64),)
        factor = 1.5
        wrong = adjudge.blame(lambda x: sine(x.exp()) * 2, x, seed=0)
        factor = 1.0
        right = adjudge.blame(lambda x: sine(x.exp()) * 2, x, seed=0)

    assert lines(wrong) == {backward.__code__.co_firstlineno}
    assert wrong.first.step.custom
    assert right


def in_another_thread(torch, rule):
    def f(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(rule(x.sin())))
        thread.start()
        thread.join()
        return found[0] * x

    return f


def in_a_reentrant_checkpoint(torch, rule):
    return lambda x: torch.utils.checkpoint.checkpoint(rule, x.sin(), use_reentrant=True) * x


def under_a_gradient(torch, rule):
    def f(x):
        y = x.sin()
        if not y.requires_grad:
            y.requires_grad_()
        (gradient,) = torch.autograd.grad(rule(y).sum(), y, create_graph=True)
        return gradient * rule(x)

    return f


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("where", [in_another_thread, in_a_reentrant_checkpoint, under_a_gradient])
def test_a_rule_is_named_where_another_part_of_the_engine_calls_it(torch, where):
    x = (torch.rand(3, dtype=torch.float64),)
    wrong, right = programs.rules("torch", "tanh", "factor").tanh, programs.rules("torch").tanh

    report = adjudge.blame(where(torch, wrong), x, seed=0)

    assert report.verdict is Verdict.FAIL
    assert lines(report) == {programs.line_of("torch", "tanh")}
    assert not adjudge.blame(where(torch, right), x, seed=0).at_fault


@pytest.mark.parametrize("part", [0, 1])
def test_of_a_derivative_that_the_function_takes_the_second_one_of_a_rule_is_judged(torch, part):
    def blamed(verb, mistake, item=False):
        wrong = "tanh" if mistake else ""
        if item:  # a rule of which nobody takes the second derivative
            tanh = programs.rules("torch", wrong, mistake).tanh
            return verb(lambda x: tanh(x) * x.sum().item(), torch.rand(3).double(), seed=0)
        f = under_a_gradient(torch, programs.rules("torch", wrong, mistake).tanh)
        x = (torch.rand(3, dtype=torch.float64),)
        return verb(lambda x: f(x) + part * x.sum(), x, seed=0)

    wrong, right = blamed(adjudge.blame, programs.SECOND), blamed(adjudge.blame, "")

    assert lines(wrong) == {programs.line_of("torch", "tanh")}
    assert wrong.explained is None
    assert not right.at_fault
    assert not blamed(adjudge.blame, programs.SECOND, item=True).at_fault
    (fault,) = blamed(adjudge.examine, programs.SECOND).faults
    assert fault.line == programs.line_of("torch", "tanh")


def test_a_right_rule_is_not_called_at_fault_for_the_mode_that_it_lacks(torch):
    tanh, x = programs.rules("torch").tanh, (torch.rand(3, dtype=torch.float64),)

    report = adjudge.blame(lambda x: tanh(x.exp()).sum(), x, order=2, seed=0)

    assert (report.verdict, report.first) == (Verdict.INCONCLUSIVE, None)
    (lack,) = report.lacking
    assert (lack.lacks, lack.needed_by) == ("jvp", ("F", "FR", "RF", "FF"))
    assert report.headline.startswith("INCONCLUSIVE: tanh (")
    assert report.headline.endswith(") has no jvp, which F, FR, RF and FF need")
    (judged,) = [one for one in report.to_dict()["judged"] if one["lacks"]]
    assert (judged["at_fault"], judged["wrong"]) == (False, [])


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_hook_of_a_parameter_is_part_of_the_gradient(torch, factor):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()).double()
    model[0].weight.register_hook(lambda gradient: factor * gradient)
    before = dict(model[0].weight._backward_hooks)

    report = adjudge.blame(model, (torch.rand(2, 3, dtype=torch.float64),), seed=0)

    assert bool(report) is (factor == 1)
    assert report.between is (factor != 1)
    said = "the gradient of parameters['0.weight'] is not what comes back from "
    assert (said in str(report)) is (factor != 1)
    assert dict(model[0].weight._backward_hooks) == before


def test_a_rule_that_fails_as_the_whole_does_and_by_no_number_is_named(torch):
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, w):  # whatever the strides of w
            (x,) = ctx.saved_tensors
            return torch.as_strided(w, w.shape, (w.shape[1], 1)) * x.cos()

    report = adjudge.blame(lambda x: Sine.apply(x) * 2, (torch.rand(2, 3).double(),), seed=0)

    assert report.first.name.startswith("Sine.backward (")
    assert "memory layout" in str(report)


def test_a_second_derivative_that_was_never_recorded_is_named(torch):
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, w):
            return w * ctx.saved_tensors[0].cos()

    x = (torch.rand(3, dtype=torch.float64),)

    def f(x):
        return (Sine.apply(x.exp()) * x).sum()

    report = adjudge.blame(f, x, order=2, seed=0)
    checked = adjudge.examine(f, x, order=2, seed=0)

    second, forward = report.lacking  # that by which the whole fails comes first
    assert report.first is None
    assert (forward.rule, forward.lacks) == ("Sine", "jvp")
    assert second.rule == "Sine.backward"
    assert report.whole.modes["RR"] is Verdict.FAIL
    assert report.headline.startswith("FAIL: Sine.backward (")
    assert report.headline.endswith(") has no derivative of its own, which RR needs")
    (fault,) = checked.faults
    assert (fault.rule, fault.needed_by, fault.wrong) == ("Sine.backward", ("RR",), 0)
    assert adjudge.blame(lambda x: (x.exp().sin() * x).sum(), x, order=2, seed=0).first is None


def test_what_the_whole_fails_by_is_said_where_no_step_is_at_fault(torch):
    def f(x):
        y = x.clone()
        z = y.sin()
        y.mul_(2)  # which PyTorch notices
        return z * y

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    assert (report.verdict, report.at_fault) == (Verdict.FAIL, [])
    assert "has been modified by an inplace operation" in str(report)


def square_with_one_memory(torch):
    """The square, whose calls share what they keep for the backward pass."""
    kept = {}

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            kept["x"] = x.detach().clone()
            return x * x

        @staticmethod
        def backward(ctx, w):
            return 2 * w * kept["x"]

    return Square


def test_a_value_that_is_changed_on_each_turn_of_a_loop_is_told_once(torch):
    Square = square_with_one_memory(torch)

    def f(x):
        for _ in range(3):
            x = Square.apply(x.cos())
        return x

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    assert len(report.changed) > 1
    (line,) = [line for line in str(report).splitlines() if "the gradient of" in line]
    assert "Square.apply" in line


def test_a_hook_is_named_with_its_module_and_what_it_changes_with_its_number(torch):
    layers = [torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3)]
    model = torch.nn.Sequential(*layers).double()
    model[1].register_full_backward_hook(lambda module, inner, outer: (inner[0] * 2,))

    report = adjudge.blame(model, (torch.rand(2, 3, dtype=torch.float64),), seed=0)

    (line,) = [line for line in str(report).splitlines() if "the gradient of" in line]
    assert line.startswith(
        "  the gradient of the result of torch.nn.functional.linear in module 0 "
        "is not what comes back from a backward hook of module 1, past the hook <lambda> ("
    )
    assert line.endswith(") (step 0)")


def halved(gradient):
    return gradient / 2


def seen(gradient):
    """A hook that only looks."""


class Tripled:
    def __call__(self, gradient):
        return 3 * gradient


@pytest.mark.parametrize("where", ["the input", "a value", "the output", "a part"])
@pytest.mark.parametrize("hook", [halved, Tripled(), seen], ids=["halved", "object", "seen"])
def test_a_hook_on_a_tensor_is_named_with_its_line_where_it_changes_a_gradient(torch, where, hook):
    def f(x):
        y = x.sin()
        part, z = y[:2], y.exp()
        places = {"the input": x, "a value": y, "the output": z, "a part": part}
        if x.requires_grad:
            places[where].register_hook(hook)
        return part.sum() + z

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    if hook is seen:
        assert report
        assert not report.hooks
        return
    name, code = type(hook).__name__, type(hook).__call__
    if hook is halved:
        name, code = "halved", halved
    (found,) = report.hooks
    assert (found.name, found.place) == (name, (THIS, code.__code__.co_firstlineno))
    assert report.headline.startswith(f"FAIL: a hook changes the gradient: {name} (")
    assert report.to_dict()["hooks"][0]["line"] == code.__code__.co_firstlineno
    assert f", past the hook {name} (" in str(report)


def halved_all(*gradients):
    """A hook of a node, before or after it."""
    return tuple(one if one is None else one / 2 for one in gradients[0])


def seen_all(*gradients):
    """A hook of a node that only looks."""


def halved_of_module(module, of_inputs, of_outputs):
    return halved_all(of_inputs)


def copy_of(saved):
    """A hook on what is saved that changes nothing."""
    return saved.clone()


def on_a_node(hook):
    def f(x):
        y = x.sin()
        if y.grad_fn is not None:
            y.grad_fn.register_hook(hook)
        return y.exp()

    return f


def before_a_node(hook):
    def f(x):
        y = x.sin()
        if y.grad_fn is not None:
            y.grad_fn.register_prehook(hook)
        return y.exp()

    return f


def on_a_module_of_old(hook):
    module = importlib.import_module("torch").nn.Tanh()
    module.register_backward_hook(hook)
    return lambda x: module(x.sin()).exp()


def on_what_is_saved(hook):
    torch = importlib.import_module("torch")

    def f(x):
        with torch.autograd.graph.saved_tensors_hooks(hook, lambda kept: kept):
            y = x.sin()
        return y.exp()

    return f


@pytest.mark.parametrize(
    ("f", "changes", "looks"),
    [
        (on_a_node, halved_all, seen_all),
        (before_a_node, halved_all, seen_all),
        (on_a_module_of_old, halved_of_module, seen_all),
        (on_what_is_saved, halved, copy_of),
    ],
)
@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
def test_hooks_that_no_function_mode_sees_are_named_with_their_lines(torch, f, changes, looks):
    x = (torch.rand(3, dtype=torch.float64),)

    wrong, right = (adjudge.blame(f(hook), x, seed=0) for hook in (changes, looks))

    assert (changes.__name__, (THIS, changes.__code__.co_firstlineno)) in [
        (one.name, one.place) for one in wrong.hooks
    ]
    assert f"the gradient: {changes.__name__} (" in wrong.headline
    assert (bool(right), list(right.hooks)) == (True, [])


def test_one_hook_on_several_values_is_one_hook(torch):
    def f(x):
        for _ in range(2):
            x = x.sin()
            if x.requires_grad:
                x.register_hook(halved)
        return x

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    assert len(report.hooks) > 1
    assert report.headline.startswith("FAIL: a hook changes the gradient: halved (")
    assert report.headline.count("halved") == 1


def test_numbers_that_leave_the_arrays_are_in_the_headline(torch):
    def f(x):
        return x * float(x.detach().norm())

    def prints(x):
        assert float(x.detach().norm()) > 0
        return x * x

    x = (torch.rand(3, dtype=torch.float64),)
    report = adjudge.blame(f, x, seed=0)

    assert report.headline.startswith("FAIL: numbers leave the arrays in torch.Tensor.__float__ at")
    assert adjudge.blame(prints, x, seed=0).headline == "PASS: nothing is wrong in prints"


def test_of_several_hooks_none_is_said_to_be_the_one(torch):
    def f(x):
        y = x.sin()
        if x.requires_grad:
            y.register_hook(seen)
            y.register_hook(hook=halved)
        return y.exp()

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    assert report.headline.startswith("FAIL: one of these hooks changes the gradient: seen (")


@pytest.mark.parametrize("pre", [False, True])
def test_a_hook_of_a_module_is_named_with_its_line(torch, pre):
    def hook(module, *gradients):
        return tuple(gradient / 2 for gradient in gradients[0])

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).double()
    if pre:
        model[0].register_full_backward_pre_hook(hook)
    else:
        model[0].register_full_backward_hook(hook)

    report = adjudge.blame(model, (torch.rand(2, 3, dtype=torch.float64),), seed=0)

    (found,) = set(report.hooks)
    assert (found.name, found.place) == ("hook", (THIS, hook.__code__.co_firstlineno))


@on_both
@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("through", [False, True], ids=["itself", "computed"])
def test_a_rule_is_judged_for_what_is_computed_from_a_captured_array(
    adjudge_backend, with_vjp, wide, factor, through
):
    xp = adjudge_backend.xp

    def backward(x, w, g):
        return g * xp.sin(w), factor * g * x * xp.cos(w)

    rule = with_vjp(lambda x, w: x * xp.sin(w), backward)
    weight, x = (xp.asarray(some, dtype=xp.float64) for some in ([0.1, 0.7], [-0.5, 0.4]))
    if adjudge_backend.name == "torch":
        weight.requires_grad_()

    report = adjudge.blame(lambda x: rule(x, xp.exp(weight) if through else weight), (x,), seed=0)

    assert (report.whole.verdict, bool(report)) == (Verdict.PASS, factor == 1.0)
    assert report.closed_over == []
    if factor != 1.0:
        assert "inputs[1]" in str(report)


@pytest.mark.parametrize("marked", [False, True])
def test_a_rule_without_a_gradient_for_what_is_computed_from_a_parameter_is_at_fault(torch, marked):
    masked = torch_function(lambda x, m: x * m, lambda x, m, w: (w * m, None))
    weight = torch.rand(3, dtype=torch.float64, requires_grad=marked)

    report = adjudge.blame(
        lambda x: masked(x, weight.sigmoid()), (torch.rand(3, dtype=torch.float64),), seed=0
    )

    assert report.whole.verdict is Verdict.PASS
    assert bool(report) is not marked
    assert len(report.at_fault) == marked


def product_of_parts(xp, x, y):  # which is `x y`
    return xp.maximum(x, y) * xp.minimum(x, y)


def line_of_clips(xp, x, y):  # which is `x + y`
    return xp.clip(x, 0.0) - xp.clip(-x, 0.0) + y


def line_of_parts(xp, x, y):  # which is `x + y`
    return 2 * xp.maximum(x, 0 * y) - abs(x) + y


CANCELLING = [
    ("torch", product_of_parts, "RR", ["torch.maximum", "torch.minimum"]),
    long("jax", product_of_parts, "RR", ["max", "min"]),
    ("torch", line_of_clips, "R", ["torch.clip", "torch.clip"]),
    ("jax", line_of_parts, "R", ["abs"]),
]


def at_ties(engine):
    """The namespace of an engine, and two inputs that are equal in one entry; one has a zero."""
    xp = importlib.import_module("torch" if engine == "torch" else "jax.numpy")
    arrays = backend_named(engine).arrays
    made = [arrays.make(np.array(a), "float64", "cpu") for a in ([0.7, 0, -0.3], [0.7, 0.4, 0.2])]
    return xp, tuple(made)


@pytest.mark.parametrize(("engine", "f", "word", "names"), CANCELLING)
def test_steps_at_kinks_whose_slopes_do_not_fit_together_are_named(engine, f, word, names, wide):
    pytest.importorskip(engine)
    xp, (x, y) = at_ties(engine)
    line = f.__code__.co_firstlineno + 1

    def function(x, y):
        return f(xp, x, y)

    report = adjudge.blame(function, (x, y), modes=[word], seed=0)
    beside = adjudge.blame(function, (x + 0.1, y), modes=[word], seed=0)

    assert (report.verdict, report.at_fault) == (Verdict.FAIL, [])
    assert [report.steps[k].name for k in report.kinks] == names
    assert f"{names[0]} at {THIS}:{line} stands at a kink of its own" in str(report).replace(
        "tests/backends/test_blame.py", THIS
    )
    assert (bool(beside), list(beside.kinks)) == (True, [])


@pytest.mark.parametrize(("engine", "f", "word", "names"), CANCELLING)
def test_a_wrong_rule_beside_kinks_is_at_fault_and_they_are_not(engine, f, word, names, wide):
    pytest.importorskip(engine)
    xp, x = at_ties(engine)
    tanh = programs.rules(engine, "tanh", "factor").tanh

    report = adjudge.blame(lambda x, y: f(xp, x, y) + tanh(x), x, modes=[word], seed=0)

    assert lines(report) == {programs.line_of(engine, "tanh")}
    assert list(report.kinks) == []


@pytest.mark.parametrize(("engine", "f", "word", "names"), CANCELLING)
def test_a_check_that_fails_by_kinks_that_cancel_names_their_steps(engine, f, word, names, wide):
    pytest.importorskip(engine)
    xp, x = at_ties(engine)

    report = adjudge.examine(lambda x, y: f(xp, x, y), x, order=2, seed=0)

    assert report.verdict is Verdict.FAIL
    assert {fault.step for fault in report.faults} == {*names}
    assert all(fault.at_kink for fault in report.faults)
    assert f"{names[0]} at " in str(report).splitlines()[2]


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.001, False)])
def test_whether_a_derivative_is_right_beside_a_kink_is_asked_on_both_sides(torch, factor, right):
    def backward(x, w):
        return w * torch.where(x > 0, factor, x.sign())

    one_side = torch_function(torch.abs, backward)
    x = (torch.tensor([0.0, 0.5, -2.0], dtype=torch.float64),)

    problem = problem_of(one_side, x, {})
    found, work = right_beside(problem, ["R"], {}, seed=0)
    half, spent = right_beside(problem, ["R"], {}, seed=0, budget=work // 2)

    assert found is right
    assert (half, spent < work) == (False, True)


def bisected(where):
    """A square root by halving a bracket that follows its argument."""

    def root(a):
        low, high = 0 * a, a + 1
        for _ in range(50):
            middle = (low + high) / 2
            below = middle * middle < a
            low, high = where(below, middle, low), where(below, high, middle)
        return middle

    return root


@pytest.mark.parametrize(
    ("engine", "modes"),
    [("torch", ["R"]), long("torch", ["F"]), long("jax", ["R"]), long("jax", ["F"])],
)
def test_what_goes_by_comparisons_is_traced_to_them(engine, modes, wide):
    pytest.importorskip(engine)
    where = importlib.import_module("torch" if engine == "torch" else "jax.numpy").where
    x = backend_named(engine).arrays.make(np.array([2.0, 0.5, 3.0]), "float64", "cpu")
    root = bisected(where)
    line = root.__code__.co_firstlineno + 4

    report = adjudge.blame(root, (x,), modes=modes, seed=0)

    assert (report.verdict, report.at_fault) == (Verdict.FAIL, [])
    assert {report.steps[k].place.line for k in report.dead_ends} == {line}
    assert "the derivative ends in " in report.headline


def test_a_loop_of_unknown_length_is_looked_into_by_forward_mode(wide):
    """JAX has no reverse mode of such a loop; that of each step in it serves."""
    jax = pytest.importorskip("jax")
    tanh = jax.custom_jvp(jax.numpy.tanh)

    @tanh.defjvp
    def wrong(x, v):
        y = tanh(*x)
        return y, 1.5 * (1 - y * y) * v[0]

    def f(x):
        def turn(carry):
            return carry[0] + 1, tanh(carry[1] * x) + jax.numpy.sin(carry[1])

        return jax.lax.while_loop(lambda carry: carry[0] < 5, turn, (0, x))[1]

    report = adjudge.blame(f, (jax.numpy.asarray([0.3, 0.8]),), modes=["F"], seed=0)

    assert [one.fault.line for one in report.at_fault] == [wrong.__code__.co_firstlineno]
    assert (report.note, report.explained) == ("", True)


@pytest.mark.parametrize("beside", [False, True], ids=["", "beside one of symmetric matrices"])
@pytest.mark.parametrize("factor", [1.0, 2.0, 1.001])
def test_a_rule_whose_error_is_small_beside_the_derivative_is_named(torch, factor, beside):
    def backward(x, w):
        return w * x.cos() * torch.tensor([1.0, factor, 1.0])

    sine = torch_function(torch.sin, backward)
    # right for symmetric matrices alone, which are all that it gets
    square = torch_function(lambda a: a * a, lambda a, w: a * (w + w.mT))
    scales = torch.tensor([1e6, 1e-6, 1e5], dtype=torch.float64)

    def f(x):
        other = square(x[:, None] * x) if beside else x
        return scales * sine(x), other

    report = adjudge.blame(f, (torch.tensor([0.3, 0.5, 0.8], dtype=torch.float64),), seed=0)

    wrong = factor != 1.0
    assert report.whole.verdict is (Verdict.FAIL if wrong else Verdict.PASS)
    assert [one.step.operands[0].step for one in report.at_fault] == [-1] * wrong


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_derivatives_whose_squares_leave_the_range_of_the_dtype_are_looked_into(torch, scale):
    tanh = programs.rules("torch", "tanh", "factor").tanh

    def f(x):
        return scale * tanh(x[:, None] * x).sin()

    report = adjudge.blame(f, (torch.tensor([0.3, 0.5, 0.8], dtype=torch.float64),), seed=0)

    assert lines(report) == {programs.line_of("torch", "tanh")}
    assert (report.explained, report.between, report.outside) == (True, False, False)


def test_a_rule_whose_error_only_long_steps_show_is_named(torch):
    def f(x):
        return 0.5 * torch.sinc(1.0 * x)  # whose derivative next to zero PyTorch takes for zero

    x = (torch.tensor([1e-5, -2e-9], dtype=torch.float64),)
    report = adjudge.blame(f, x, modes=["R"], seed=0)

    assert [one.step.name for one in report.at_fault] == ["torch.sinc"]


def test_cuts_in_different_lines_are_told_apart(torch):
    def f(x):
        shift = (x - 1).detach()  # which is meant
        y = (x - shift).exp() * shift.exp()
        first = x.sin().detach() * x
        return y + first + x.cos().detach() * x

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    lines = [one.step.place.line - f.__code__.co_firstlineno for one in report.at_fault]
    assert lines == [3, 4]
    assert report.explained
    assert str(report).count("the derivative ends in") == 2


HIDDEN = (
    *(("written_into", "perceptron"), ("cached", "attention"), ("hooked_tensor", "recurrent")),
    *(("hooked_module", "attention"), ("drawn_again", "perceptron")),
    *(("written_cotangent", "attention"), ("large_cotangent", "recurrent")),
)
"""The benchmark has each kind in each program."""


@pytest.mark.parametrize(("kind", "program"), HIDDEN)
def test_where_all_rules_are_right_alone_the_place_is_named(torch, kind, program):
    hidden = importlib.import_module("hidden")

    wrong, right = (hidden.blamed(kind, program, right=one) for one in (False, True))

    assert (wrong.verdict, hidden.is_named(wrong)) == (Verdict.FAIL, True)
    assert right
    assert (right.at_fault, list(right.changed), hidden.is_named(right)) == ([], [], False)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("hooked_tensor", "  a hook changes the gradient: hook ("),
        ("hooked_module", "  a hook changes the gradient: hook ("),
        ("cached", "  the gradient of the result of torch.Tensor.tanh at "),
        ("large_cotangent", "  the rule at fault: Capped.backward ("),
    ],
)
def test_a_check_that_fails_says_it_too(torch, kind, said):
    hidden = importlib.import_module("hidden")

    x = (torch.rand(3, 3, dtype=torch.float64) + 0.1,)
    twins = [partial(hidden.perceptron, hidden.KINDS[kind](right)) for right in (False, True)]
    wrong, right = (adjudge.examine(lambda x, f=f: f(x, x), x, seed=0) for f in twins)

    assert (wrong.verdict, right.verdict) == (Verdict.FAIL, Verdict.PASS)
    (line,) = [one for one in str(wrong).splitlines() if one.startswith(said)]
    assert (" is not what comes back from Cached.apply: look for" in line) == (kind == "cached")
    assert right.faults == ()


def test_a_rule_that_is_wrong_for_the_cotangents_that_it_gets_is_said_to_be_right_alone(torch):
    hidden = importlib.import_module("hidden")

    report = hidden.blamed("large_cotangent", "perceptron", right=False)

    assert report.first.of_cotangents
    assert report.explained
    assert report.headline.endswith("right alone and wrong for the cotangents that it gets")
    (alone,) = (step for step in report.steps if step.custom)
    assert adjudge.examine(lambda x: alone.run((x,))[0], (torch.rand(3).double(),), seed=0)


def test_of_two_calls_that_share_what_they_keep_the_last_one_is_right(torch):
    Square = square_with_one_memory(torch)

    def f(x):
        first = Square.apply(x.cos())
        return Square.apply(first.sin())

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    (changed,) = report.changed
    assert report.steps[changed.step].name == "torch.Tensor.cos"
    (line,) = [line for line in str(report).splitlines() if "the gradient of" in line]
    assert line.endswith(f"test_blame.py:{f.__code__.co_firstlineno + 1} (step 0)")


def transformed(torch, f):
    return torch.func.vmap(f)


def of_a_gradient(torch, f):
    return torch.func.grad(lambda x: f(x).sum())


def behind_what_is_scripted(torch, f):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        scripted = torch.jit.trace(lambda x: x.sin() * 2, torch.rand(3, 4, dtype=torch.float64))
    return lambda x: f(scripted(x))


@pytest.mark.filterwarnings("ignore")  # those of torch.compile
@pytest.mark.parametrize("dynamic", [long(False), True])
def test_what_the_compiler_only_looks_at_is_no_step(torch, dynamic):
    rules = programs.rules("torch", "tanh", "factor")
    x = torch.rand(3, 4, dtype=torch.float64)
    torch.compiler.reset()
    f = torch.compile(lambda x: rules.tanh(x.cos()).exp(), backend="eager", dynamic=dynamic)
    if dynamic:  # what is recorded says enough: a check compiles for each of its contexts
        assert len(backend_named("torch").trace(lambda x: (f(x[0]) * 2,), (x,)).steps) == 4
        return

    report = adjudge.blame(lambda x: f(x) * 2, (x,), seed=0)

    assert lines(report) == {programs.line_of("torch", "tanh")}
    assert isinstance(report.work, float)
    assert "of 4 in all" in str(report)


@pytest.mark.parametrize("wrapped", [transformed, of_a_gradient, behind_what_is_scripted])
def test_a_rule_beside_what_cannot_be_recorded_is_named(torch, wrapped):
    class Tanh(kept_tanh()):
        generate_vmap_rule = True

        @staticmethod
        def backward(ctx, w):
            return 1.5 * w * (1 - ctx.saved_tensors[0] ** 2)

    f = wrapped(torch, lambda x: Tanh.apply(x.cos()).exp())
    x = torch.rand(3, 4, dtype=torch.float64)

    report = adjudge.blame(lambda x: f(x) * x.detach(), (x,), seed=0)

    assert report.verdict is Verdict.FAIL
    (rule,) = report.at_fault  # and not `detach`, which may be meant
    assert THIS in (rule.step.rule_place.file, rule.step.place.file)
    assert "not judged: " in str(report)
    assert "a function that is scripted or compiled" in str(report)


@pytest.mark.parametrize(
    ("left", "name"),
    [
        (lambda torch, x: x.sum().item(), "item"),
        (lambda torch, x: math.exp(x[0].detach()), "__float__"),
        (lambda torch, x: torch.from_dlpack(x.detach().sin()), "__dlpack__"),
    ],
)
def test_a_value_that_leaves_the_tensors_is_named(torch, left, name):
    x = torch.rand(3, dtype=torch.float64)

    report = adjudge.blame(lambda x: x * left(torch, x), (x,), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.outside
    assert f"torch.Tensor.{name} at" in str(report)


def test_a_cut_that_cancels_with_a_number_that_left_the_tensors_is_not_named(torch):
    def f(x):
        shift = x.sum().item()
        return (x - shift).exp().sum().log() + x.detach().sum()

    assert adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)


def test_what_a_function_keeps_between_calls_is_said_where_nothing_else_explains_it(torch):
    kept = [torch.zeros(3, dtype=torch.float64)]

    def f(x):
        before, kept[0] = kept[0], x.detach().clone()
        return x * 2 + before

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    assert report.outside
    assert "as by what it keeps between calls" in str(report)


def test_a_step_that_was_called_under_no_grad_is_named_with_that(torch):
    def f(x):
        with torch.no_grad():
            length = x.norm()
        return x / length

    x = (torch.rand(3, dtype=torch.float64),)
    report, checked = (verb(f, x, seed=0) for verb in (adjudge.blame, adjudge.examine))

    assert report.headline.endswith(", which was called under torch.no_grad")
    assert "which was called under torch.no_grad" in str(checked)
    assert checked.faults[0].under == "torch.no_grad"


def test_what_a_budget_leaves_open_is_listed(torch):
    wrong, x = programs.rules("torch", "tanh", "factor").tanh, torch.rand(3).double()

    report = adjudge.blame(lambda x: wrong(x.sin()).exp(), (x,), seed=0, max_evaluations=12)

    (left,) = report.undecided
    assert report.verdict is Verdict.INCONCLUSIVE
    (line,) = [one for one in str(report).splitlines() if one.startswith("not decided: ")]
    assert line.startswith(f"not decided: {left.name}: tanh.apply: ")
    assert "the budget is spent" in line
    assert report.to_dict()["undecided"][0]["name"] == left.name


def test_lines_that_are_equal_are_one_line_with_a_count(torch):
    def f(x):
        for _ in range(3):
            x = x * x.sum().item()
        return x

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    (line,) = [line for line in str(report).splitlines()[1:] if "torch.Tensor.item at" in line]
    assert line.endswith(" (3 times)")


def test_a_value_of_inference_mode_ends_the_derivative(torch):
    def f(x):
        with torch.inference_mode():
            s = x.square().sum()
        return x * s.clone()

    report = adjudge.blame(f, (torch.rand(3, dtype=torch.float64),), seed=0)

    assert report.headline.startswith("FAIL: the derivative ends in torch.Tensor.sum at ")
    assert report.explained


def test_a_rule_of_pytorch_is_not_blamed_where_only_it_fails_and_all_else_is_unknown(torch):
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit is deprecated
            y = torch.jit.trace(torch.sin, x.detach())(x)
        return torch.linalg.eigvalsh(torch.outer(y, y) + torch.diag(torch.arange(3.0).double()))

    report = adjudge.blame(f, (torch.tensor([0.3, 0.7, 0.2], dtype=torch.float64),), seed=0)

    assert report.whole
    assert report, str(report)
    assert "cannot be told beside what is opaque: " in str(report)
    assert "torch.linalg.eigvalsh" in str(report)


def hook_on_a_tensor(torch, x):
    y = x.sin()
    if y.requires_grad:
        y.register_hook(lambda w: 2 * w)
    return y * 2


def hook_on_a_module(torch, x):
    module = torch.nn.Tanh()
    module.register_full_backward_hook(lambda module, inner, outer: (inner[0] * 2,))
    return module(x.sin()) * 2


def write_into_what_a_rule_saved(torch, x):
    y = x.exp()
    z = y * 3
    y.data.mul_(2)
    return z


def checkpoint_that_draws_again(torch, x):
    def part(y):
        return torch.nn.functional.dropout(y.sin(), 0.5)

    again = torch.utils.checkpoint.checkpoint
    return again(part, x, use_reentrant=False, preserve_rng_state=False).sum()


@pytest.mark.parametrize(
    ("f", "value", "users"),
    [
        (hook_on_a_tensor, "inputs[0]", "torch.Tensor.sin"),
        (hook_on_a_module, "the result of torch.Tensor.sin", "a backward hook of module Tanh"),
        (write_into_what_a_rule_saved, "inputs[0]", "torch.Tensor.exp"),
        (
            checkpoint_that_draws_again,
            "the result of torch.Tensor.sin",
            "torch.nn.functional.dropout",
        ),
    ],
)
def test_what_changes_a_gradient_between_the_rules_is_named_by_where_it_stands(
    torch, f, value, users
):
    x = torch.rand(20, dtype=torch.float64)

    report = adjudge.blame(lambda x: f(torch, x), (x,), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.at_fault == []
    assert report.between
    assert len(report.changed) == 1
    (line,) = [line for line in str(report).splitlines() if "the gradient of" in line]
    assert line.startswith(f"  the gradient of {value} ")
    assert f" from {users} at " in line
    assert "test_blame.py:" in line


def test_a_step_that_gives_another_value_is_reported_and_not_judged(torch):
    calls = []

    class Moody(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            calls.append(1)
            return x * len(calls)

        @staticmethod
        def backward(ctx, w):
            return -w

    report = adjudge.blame(Moody.apply, (torch.rand(3, dtype=torch.float64),), seed=0)

    assert report.judged == []
    assert list(report.opaque.values()) == ["gives another value when it is run again"]
    assert "not judged: Moody.apply" in str(report)


def test_a_function_that_draws_is_judged_with_the_numbers_that_it_drew(torch):
    rules = programs.rules("torch", "silu", "factor")

    def f(x):
        return rules.silu(torch.nn.functional.dropout(rules.tanh(x), 0.3))

    x = (torch.rand(4, 5, dtype=torch.float64),)
    state = torch.get_rng_state()

    report = adjudge.blame(f, x, seed=0)

    assert lines(report) == {programs.line_of("torch", "silu")}
    assert report.explained
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("calls_that_work", [3, 1000])
def test_arrays_buffers_and_random_numbers_are_as_before(torch, calls_that_work):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout())
    net, x = net.double(), torch.rand(5, 3, dtype=torch.float64)
    calls = []

    def f(x):
        calls.append(1)
        y = net(x)
        if len(calls) > calls_that_work:
            raise ValueError("enough")
        return y

    before = [{k: v.clone() for k, v in net.state_dict().items()}, x.clone()]
    state = torch.get_rng_state()

    if calls_that_work < 10:
        with pytest.raises(ValueError, match="enough"):
            adjudge.blame(f, (x,), seed=0)
    else:
        adjudge.blame(f, (x,), seed=0)

    torch.testing.assert_close(dict(net.state_dict()), before[0], rtol=0, atol=0)
    assert torch.equal(x, before[1])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in net.parameters())


def test_the_program_is_drawn_with_verdicts_beside_the_steps(torch):
    rules = programs.rules("torch", "tanh", "sign")

    report = adjudge.blame(lambda x: rules.tanh(x.sin()), (torch.rand(2, dtype=torch.float64),))

    first, second = report.trace.splitlines()
    assert first.split()[:2] == ["0", "torch.Tensor.sin"]
    assert second.split()[:3] == ["1", "FAIL", "tanh.apply"]

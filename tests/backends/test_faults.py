"""What a check that fails says of the rule at fault."""

import importlib
import inspect

import numpy as np
import programs
import pytest
from scenarios import kept_tanh, long, on_both, seeds

import adjudge
from adjudge import ByHand, GradcheckError, Status, Verdict
from adjudge.engine import AutodiffBackend, WrappedBackend, backend_named


def work_of(report):
    return sum(report.counts[one] for one in ("evaluations", "vjps", "jvps"))


@pytest.fixture
def x(adjudge_backend):
    xp = adjudge_backend.xp
    return (xp.asarray([0.3, 0.7, 1.2], dtype=xp.float32),)


def chain(adjudge_backend, wrong="", mistake=""):
    """Three steps, of which that in the middle is a custom rule."""
    rules, xp = programs.rules(adjudge_backend.name, wrong, mistake), adjudge_backend.xp
    return lambda x: 2 * rules.tanh(xp.sin(x))


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@on_both
def test_the_error_names_the_rule_at_fault_before_the_finding(adjudge_backend, x):
    name = adjudge_backend.name

    with pytest.raises(GradcheckError) as raised:
        adjudge.gradcheck(chain(adjudge_backend, "tanh", "sign"), x, seed=0)

    (fault,) = raised.value.report.faults
    line = programs.line_of(name, "tanh")
    assert (fault.file, fault.line, fault.calls) == (programs.__file__, line, 1)
    _, defined, said, *_ = str(raised.value).splitlines()
    assert defined.startswith("  defined at ")
    assert said.startswith(f"  the rule at fault: {fault.rule} (")
    assert said.endswith(f"programs.py:{line}), called once")
    assert raised.value.report.to_dict()["faults"][0]["line"] == line


@on_both
def test_a_check_that_passes_names_none(adjudge_backend, x):
    report = adjudge.gradcheck(chain(adjudge_backend), x, seed=0)

    assert report.faults == ()
    assert "at fault" not in str(report)


@pytest.mark.parametrize(
    ("program", "seed"),
    [
        *((programs.mlp, seed) for seed in range(3)),
        *(long(programs.mlp, seed) for seed in range(3, 10)),
        (programs.transformer, 0),
        *(long(programs.transformer, seed) for seed in range(1, 3)),
    ],
)
def test_a_rule_that_is_called_often_is_named_whatever_the_seed(torch, program, seed):
    rule, mistake = programs.RULES[program][0], programs.MISTAKES[seed % len(programs.MISTAKES)]
    rules = programs.rules("torch", rule, mistake)
    inputs = programs.inputs("torch", program, seed)

    report = adjudge.examine(lambda *x: program(rules, *x), inputs, seed=seed)

    assert [fault.line for fault in report.faults] == [programs.line_of("torch", rule)]
    (fault,) = report.faults
    assert fault.wrong == fault.judged <= fault.calls


@on_both
@pytest.mark.parametrize("wrong", ["", "tanh"])
def test_a_function_of_one_step_says_nothing(adjudge_backend, x, wrong):
    rules = programs.rules(adjudge_backend.name, wrong, "sign")

    report = adjudge.examine(lambda x: rules.tanh(x), x, seed=0)

    assert report.verdict is (Verdict.FAIL if wrong else Verdict.PASS)
    assert report.faults == ()


def test_derivatives_by_hand_say_nothing():
    rule = ByHand(np.sin, vjp=lambda x, w: -w * np.cos(x))

    assert adjudge.examine(rule, (np.array([0.3, 0.7]),), seed=0).faults == ()


def counted(f):
    calls = []

    def g(*x):
        calls.append(1)
        return f(*x)

    return g, calls


@pytest.mark.parametrize("seed", seeds(10))
def test_it_costs_no_more_calls_than_the_check(torch, seed):
    rules = programs.rules("torch", "tanh", "1e-3")
    f, calls = counted(lambda x: 2 * rules.tanh(x.sin()).cos())
    x = (torch.rand(3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)),)

    without = adjudge.examine(f, x, seed=seed, blame=False)
    before = len(calls)
    report = adjudge.examine(f, x, seed=seed)

    assert without.faults == ()
    assert len(report.faults) == 1
    assert 0 < len(calls) - 2 * before <= work_of(report)
    assert report.counts == without.counts


@pytest.mark.parametrize(("budget", "named"), [(20, 0), (30, 0), (52, 1), (300, 1)])
def test_it_keeps_to_the_budget_of_the_caller(torch, budget, named):
    rules = programs.rules("torch", "tanh", "sign")
    f, calls = counted(lambda x: 2 * rules.tanh(x.sin()))
    x = (torch.tensor([0.3, 0.7, 1.2], dtype=torch.float64),)
    adjudge.examine(f, x, seed=0, max_evaluations=budget, blame=False)
    before = len(calls)

    report = adjudge.examine(f, x, seed=0, max_evaluations=budget)

    assert report.verdict is Verdict.FAIL
    assert len(report.faults) == named
    assert len(calls) - 2 * before <= max(budget - work_of(report), 0)
    assert (report.unjudged is None) == (named == 1)
    if not named:
        assert report.unjudged.steps == ()
        assert f"no rule was looked for: the budget left {report.unjudged.budget} " in str(report)


def test_what_a_budget_left_is_listed(torch):
    names = ("tanh", "sigmoid", "silu")
    wrong = [getattr(programs.rules("torch", name, "factor"), name) for name in names]

    def f(x):
        for rule in wrong:
            x = rule(x.sin())
        return x

    x = (torch.tensor([0.3, 0.7, 1.2], dtype=torch.float64),)
    whole = adjudge.examine(f, x, seed=0, max_evaluations=300)
    some = [adjudge.examine(f, x, seed=0, max_evaluations=one) for one in (50, 55, 60, 65)]

    assert whole.unjudged is None
    for report in (whole, *some):
        assert report.verdict is Verdict.FAIL
        left = report.unjudged.steps if report.unjudged else ()
        assert len(report.faults) + len(left) == len(names)
        assert {one.rule for one in (*report.faults, *left)} == {one.rule for one in whole.faults}
        assert all(one.judged == 0 and one.file == programs.__file__ for one in left)
    some = next(report for report in some if report.faults and report.unjudged)
    left = some.unjudged.steps
    assert left
    said = str(some)
    budget = some.unjudged.budget
    assert (
        f"not judged, since the budget of {budget} calls ended (adjudge.blame has none): " in said
    )
    assert all(f"{one.rule} (" in said for one in left)
    assert some.to_dict()["unjudged"]["steps"][0]["rule"] == left[0].rule


@pytest.mark.parametrize("more", range(1, 30, 7))
def test_a_function_that_raises_meanwhile_has_its_verdict(torch, more):
    rules = programs.rules("torch", "tanh", "sign")
    net = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.2)).double()
    limit = [10**6]

    def f(x):
        y = net(2 * rules.tanh(x.sin()))
        limit[0] -= 1
        if limit[0] < 0:
            raise ValueError("enough")
        return y

    x = torch.rand(5, 3, dtype=torch.float64)
    without = adjudge.examine(f, (x,), seed=0, blame=False)
    limit[0] = 10**6 - limit[0] + more
    before = [{k: v.clone() for k, v in net.state_dict().items()}, x.clone()]
    state = torch.get_rng_state()

    report = adjudge.examine(f, (x,), seed=0)

    assert (report.verdict, report.findings) == (without.verdict, without.findings)
    assert report.verdict is Verdict.FAIL
    torch.testing.assert_close(dict(net.state_dict()), before[0], rtol=0, atol=0)
    assert torch.equal(x, before[1])
    assert torch.equal(torch.get_rng_state(), state)


@on_both
def test_an_engine_that_cannot_record_says_nothing(adjudge_backend, x):
    class Unrecorded(WrappedBackend):
        trace = AutodiffBackend.trace

    engine = Unrecorded(backend_named(adjudge_backend.name))
    f = chain(adjudge_backend, "tanh", "sign")

    assert len(adjudge.examine(f, x, seed=0).faults) == 1
    assert adjudge.examine(f, x, seed=0, backend=engine).faults == ()


@on_both
def test_a_cut_is_named_where_it_matters_and_not_where_it_is_meant(adjudge_backend, x):
    xp, name = adjudge_backend.xp, adjudge_backend.name
    rules = programs.rules(name, "tanh", "sign")
    cut = {
        "torch": lambda y: y.detach(),
        "jax": lambda y: importlib.import_module("jax").lax.stop_gradient(y),
    }[name]

    def meant(x):
        shift = cut(xp.max(x))
        return rules.tanh(xp.log(xp.sum(xp.exp(x - shift))) + shift)

    (tanh,) = adjudge.examine(meant, x, seed=0).faults
    report = adjudge.examine(lambda x: cut(xp.sin(x)) * x, x, seed=0)

    assert tanh.line == programs.line_of(name, "tanh")
    (fault,) = report.faults
    assert fault.cuts
    assert f"  the derivative ends in {fault.step} at " in str(report)
    assert fault.file == __file__


def test_a_step_of_the_engine_is_named_with_the_line_that_calls_it(torch):
    layer = torch.nn.LayerNorm(4).double()
    x = torch.rand(3, 4, dtype=torch.float64)

    report = adjudge.examine(lambda x: layer(x.sin()) * 2, (x,), modes=["R", "RF"], seed=0)

    assert report.modes["RF"] is Verdict.FAIL
    assert [fault.step for fault in report.faults] == ["torch.nn.functional.layer_norm"]
    assert "  the rule at fault: torch.nn.functional.layer_norm" in str(report)


def test_a_rule_whose_second_derivative_alone_is_wrong_is_named(torch):
    program = programs.experts
    rules = programs.rules("torch", "softmax", programs.SECOND)
    inputs = programs.inputs("torch", program, 0)

    report = adjudge.examine(lambda *x: program(rules, *x), inputs, modes=["R", "RR"], seed=0)

    assert (report.modes["R"], report.modes["RR"]) == (Verdict.PASS, Verdict.FAIL)
    assert [fault.line for fault in report.faults] == [programs.line_of("torch", "softmax")]


def test_gradgradcheck_names_the_rule_as_gradcheck_does(torch):
    rules = programs.rules("torch", "tanh", programs.SECOND)
    x = torch.rand(3, dtype=torch.float64)

    def f(x):
        return 2 * rules.tanh(x.sin())

    with pytest.raises(GradcheckError, match=r"the rule at fault: tanh.tanh_backward") as raised:
        adjudge.gradgradcheck(f, x, seed=0)
    without = adjudge.gradgradcheck(f, x, seed=0, blame=False, raise_exception=False)

    assert [fault.line for fault in raised.value.report.faults] == [
        programs.line_of("torch", "tanh")
    ]
    assert without.faults == ()


@pytest.mark.parametrize("modes", [["R", "F"], ["R", "FR"]])
def test_of_a_right_vjp_and_a_wrong_jvp_the_line_of_the_jvp_is_named(torch, modes):
    class Tanh(kept_tanh()):
        factor = -1.0

        @staticmethod
        def backward(ctx, w):
            return w * (1 - ctx.saved_tensors[0] ** 2)

        @staticmethod
        def jvp(ctx, v):
            return Tanh.factor * v * (1 - ctx.saved_tensors[0] ** 2)

    x = (torch.rand(3, dtype=torch.float64),)

    def f(x):
        return 2 * Tanh.apply(x.sin())

    report = adjudge.examine(f, x, modes=modes, seed=0)
    Tanh.factor = 1.0

    assert (report.modes["R"], report.modes[modes[1]]) == (Verdict.PASS, Verdict.FAIL)
    line = inspect.getsourcelines(Tanh.jvp)[1]
    assert [(one.rule, one.file, one.line) for one in report.faults] == [
        ("Tanh.jvp", __file__, line)
    ]
    assert adjudge.examine(f, x, modes=modes, seed=0)


def test_of_a_right_jvp_and_a_vjp_that_forward_mode_cannot_follow_the_vjp_is_named(torch):
    class Tanh(kept_tanh()):
        @staticmethod
        def backward(ctx, w):
            return w * (1 - ctx.saved_tensors[0].detach() ** 2)

        @staticmethod
        def jvp(ctx, v):
            return v * (1 - ctx.saved_tensors[0] ** 2)

    x = (torch.rand(3, dtype=torch.float64),)

    report = adjudge.examine(lambda x: 2 * Tanh.apply(x.sin()), x, modes=["R", "FR"], seed=0)

    assert [one.rule for one in report.faults] == ["Tanh.backward"]


@pytest.mark.parametrize("modes", [["R"], ["F"]])
def test_a_wrong_custom_jvp_is_named_by_its_line(modes):
    jax = pytest.importorskip("jax", minversion="0.5")  # older ones do not keep the names of rules

    @jax.custom_jvp
    def tanh(x):
        return jax.numpy.tanh(x)

    def push(primals, tangents):
        return tanh(*primals), 1.5 * tangents[0] * (1 - jax.numpy.tanh(*primals) ** 2)

    tanh.defjvp(push)
    x = (jax.numpy.asarray([0.3, 0.7]),)

    report = adjudge.examine(lambda x: 2 * tanh(jax.numpy.sin(x)), x, modes=modes, seed=0)

    assert report.verdict is Verdict.FAIL
    (fault,) = report.faults
    named = f"{push.__qualname__}", push.__code__.co_firstlineno
    assert (fault.rule, fault.line) == (named[0].rpartition(".")[2], named[1])


@pytest.mark.parametrize("mistake", ["factor", ""])
def test_a_rule_under_a_transform_is_named_where_a_cut_beside_it_may_be_meant(torch, mistake):
    class Tanh(kept_tanh()):
        generate_vmap_rule = True

        @staticmethod
        def backward(ctx, w):
            return (1.5 if mistake else 1.0) * w * (1 - ctx.saved_tensors[0] ** 2)

    mapped = torch.func.vmap(lambda x: Tanh.apply(x.cos()).exp())
    x = (torch.rand(3, 4, dtype=torch.float64),)

    report = adjudge.examine(lambda x: mapped(x) * (x.detach() if mistake else x), x, seed=0)

    named = [("Tanh.backward", inspect.getsourcelines(Tanh.backward)[1])]
    assert [(one.rule, one.line) for one in report.faults] == (named if mistake else [])
    assert bool(report) is not bool(mistake)


@on_both
def test_of_several_points_the_inputs_are_looked_at(adjudge_backend, x):
    f = chain(adjudge_backend, "tanh", "sign")

    report = adjudge.examine(f, x, points=[(2 * x[0],)], seed=0)

    assert len(report.faults) == 1
    assert str(report).splitlines()[2].startswith("  the rule at fault: ")


def test_where_no_comparison_failed_nothing_is_looked_for(torch):
    def writes(x):
        y = 2 * x + 1
        x.data.add_(1)
        return 3 * y

    f, calls = counted(writes)
    x = (torch.rand(3, dtype=torch.float64),)

    adjudge.examine(f, x, seed=0, blame=False)
    before = len(calls)
    report = adjudge.examine(f, x, seed=0)

    assert report.verdict is Verdict.FAIL
    assert Status.MUTATES_INPUT in {finding.status for finding in report.findings}
    assert len(calls) == 2 * before

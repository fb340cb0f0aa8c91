"""Every composition of modes, in each way of each engine, and the rule that is accused."""

from functools import partial

import pytest
from frameworks import torch
from scenarios import cells, on_both

from adjudge import InputError, Status, Verdict, examine, gradcheck
from adjudge.findings import JudgedBy

SECOND = ["R", "F", "RR", "FR", "RF", "FF"]
RULES = {"torch": SECOND[:-1], "jax": SECOND}
"""But for FF in PyTorch, where 2.13 loses the outer tangent of every custom function."""
WAYS = {"torch": ["eager", "torch.func"], "jax": ["eager", "jit"]}
X = [0.3, -1.2, 2.5]


@pytest.fixture
def x(adjudge_backend):
    return adjudge_backend.array(X)


@pytest.fixture
def cube(adjudge_backend, request):
    """`cube(**planted)`: `x³` with rules that are right but for what is planted in them."""
    if adjudge_backend.name == "torch":
        return torch_cube
    with_jvp, jax = request.getfixturevalue("with_jvp"), request.getfixturevalue("jax")

    def make(*, jvp=1.0, jvp_cut=False):
        held = jax.lax.stop_gradient if jvp_cut else lambda x: x
        return with_jvp(lambda x: x**3, lambda x, v: jvp * 3 * held(x) ** 2 * v)

    return make


def torch_cube(*, vjp=1.0, jvp=1.0, vjp_cut=False, jvp_cut=False, inner=None):
    """`x³` with both rules; `_cut`: what they are computed from is held fixed; `inner`: what the
    VJP rule goes through.
    """

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            x = (x.detach() if vjp_cut else x).conj()
            gradient = vjp * 3 * x * x * w
            return same(**inner)(gradient) if inner is not None else gradient

        @staticmethod
        def jvp(ctx, v):
            (x,) = ctx.saved_tensors
            x = x.detach() if jvp_cut else x
            return jvp * 3 * x * x * v

    return Cube.apply


def same(*, vjp=1.0, jvp=1.0):
    """The identity with rules for both modes."""

    class Same(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, w):
            return vjp * w

        @staticmethod
        def jvp(ctx, v):
            return jvp * v

    return Same.apply


def wrong_in(outcomes):
    return [mode for mode, outcome in outcomes.items() if outcome is Verdict.FAIL]


# ---------------------------------------------------------------- on both engines


@on_both
@pytest.mark.parametrize("order", [1, 2])
def test_right_rules_pass_in_every_mode_and_way(adjudge_backend, cube, order, x):
    xp, name = adjudge_backend.xp, adjudge_backend.name
    modes = RULES[name][: 2 if order == 1 else None]

    report = examine(lambda x: xp.sin(x) * x, x, order=order, seed=0)

    assert report, report
    assert list(report.modes) == SECOND[: 2 if order == 1 else 6]
    assert list(report.ways) == WAYS[name]
    assert set(report.ways[WAYS[name][1]].values()) == {Verdict.PASS}
    assert "every composition is right" in str(report)
    assert examine(cube(), x, order=order, modes=modes, seed=0)


@cells(
    ("planted", "wrong", "sentence"),
    torch=[
        ({"vjp": 1.01}, ["R"], "the VJP rule is at fault (R wrong; right: F, RR, FR, RF)"),
        ({"jvp": 1.01}, ["F"], "the JVP rule is at fault (F wrong; right: R, RR, FR, RF)"),
        ({"vjp": -1.0, "jvp": -1.0}, ["R", "F"], "the JVP and the VJP rule are at fault"),
        ({"vjp_cut": True}, ["RR", "FR"], "the derivative of the VJP rule is at fault"),
        ({"jvp_cut": True}, ["RF"], "the vjp of the JVP rule is at fault"),
        ({"inner": {"vjp": 1.001}}, ["RR"], "the vjp of the VJP rule (double backward) is at"),
        ({"inner": {"jvp": 0.999}}, ["FR"], "the jvp of the VJP rule is at fault"),
        ({"inner": {"vjp": 1 + 1e-6}}, ["RR"], "the vjp of the VJP rule (double backward) is at"),
    ],
    # all modes of JAX are made of one rule
    jax=[
        (
            {"jvp": 1.0001},
            ["R", "F"],
            "the JVP and the VJP rule are at fault, or the one that both",
        ),
        ({"jvp_cut": True}, SECOND[2:], "the derivatives of both rules are at fault"),
    ],
)
def test_the_matrix_shows_which_rule_is_wrong(adjudge_backend, cube, planted, wrong, sentence, x):
    name = adjudge_backend.name

    report = examine(cube(**planted), x, order=2, modes=RULES[name], seed=0)

    assert report.verdict is Verdict.FAIL
    assert wrong_in(report.modes) == wrong
    assert sentence in str(report)
    for way in WAYS[name]:
        assert wrong_in(report.ways[way]) == wrong


@on_both
def test_third_order_has_all_fourteen_words(adjudge_backend):
    x = adjudge_backend.array(X[:2])

    report = examine(adjudge_backend.xp.sin, x, order=3, compile=False, seed=0)

    assert report, report
    assert len(report.modes) == 14
    if adjudge_backend.name == "torch":
        assert report.ways["eager"]["RFR"] is Verdict.PASS
        assert report.ways["torch.func"]["FFF"] is Verdict.PASS


@on_both
def test_what_the_function_itself_raises_comes_through(x):
    def f(x):
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError):
        examine(f, x, order=2)


# ---------------------------------------------------------------- PyTorch alone

on_torch = pytest.mark.parametrize("adjudge_backend", ["torch"], indirect=True)


@on_torch
def test_forward_over_forward_mode_of_a_custom_function_is_seen_to_lose_the_outer_tangent(x):
    report = examine(torch_cube(), x, order=2, seed=0)

    outer = torch.func.jvp(
        lambda x: torch.func.jvp(torch_cube(), (x,), (torch.ones_like(x),))[1],
        (x,),
        (torch.ones_like(x),),
    )[1]
    if torch.equal(outer, 6 * x):
        pytest.skip(f"PyTorch {torch.__version__} has it right")
    assert wrong_in(report.modes) == ["FF"]
    assert "the jvp of the JVP rule is at fault" in str(report)


@on_torch
def test_eager_forward_mode_does_not_nest_and_the_other_way_is_a_pass_with_a_note(x):
    report = examine(torch.sin, x, order=2, seed=0)

    assert report.ways["eager"]["FF"] is Status.UNSUPPORTED
    assert report.modes["FF"] is Verdict.PASS
    (note,) = [f for f in report.findings if f.status is Status.UNSUPPORTED]
    assert note.note
    assert "Nested forward mode AD" in note.detail.found
    assert JudgedBy(("torch.func",)) == note.remedy
    assert "judged by torch.func" in str(report)


@on_torch
def test_what_differs_under_torch_func_is_reported_apart(x):
    right, wrong = torch_cube(), torch_cube(jvp=1.01)

    def f(x):
        inside = torch._C._functorch.is_functorch_wrapped_tensor(x)
        return wrong(x) if inside else right(x)

    report = examine(f, x, order=1, seed=0)

    assert report.ways == {
        "eager": {"R": Verdict.PASS, "F": Verdict.PASS},
        "torch.func": {"R": Verdict.PASS, "F": Verdict.FAIL},
    }
    assert report.modes == {"R": Verdict.PASS, "F": Verdict.FAIL}
    (finding,) = [f for f in report.findings if f.status is Status.MISMATCH]
    assert finding.way == "torch.func"
    assert finding.detail.provenance.endswith("cpu, float64, torch.func")
    assert examine(right, x, order=1, seed=0)


@on_torch
def test_a_function_that_torch_func_cannot_take_is_judged_in_eager_mode(x, rule):
    sine = rule(torch.sin, lambda x, w: w * torch.cos(x))

    report = examine(sine, x, modes=["R", "RR"], order=2, seed=0)

    assert report, report
    assert set(report.ways["eager"].values()) == {Verdict.PASS}
    assert set(report.ways["torch.func"].values()) == {Status.UNSUPPORTED}
    assert "setup_context" in str(report)


@on_torch
def test_a_mode_that_no_way_offers_is_no_pass(x):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, w):
            return w * torch.cos(ctx.saved_tensors[0])

    report = examine(Once.apply, x, order=2, seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.modes["R"] is Verdict.PASS
    assert {report.modes[mode] for mode in SECOND[1:]} == {Status.UNSUPPORTED}
    assert "once_differentiable" in str(report)


@on_torch
@pytest.mark.parametrize("mode", ["R", "F"])
def test_a_derivative_that_raises_is_raised_and_the_rest_is_judged(mode, x):
    def refuse(*_):
        raise ValueError("three is not a shape")

    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        backward = staticmethod(
            refuse if mode == "R" else lambda ctx, w: 2 * ctx.saved_tensors[0] * w
        )
        jvp = staticmethod(refuse if mode == "F" else lambda ctx, v: 2 * ctx.saved_tensors[0] * v)

    report = examine(Bad.apply, x, order=1, seed=0)
    other = "F" if mode == "R" else "R"

    assert report.verdict is Verdict.FAIL
    assert report.modes == {mode: Status.RAISED, other: Verdict.PASS}
    assert "raises ValueError: three is not a shape" in str(report)
    assert any(isinstance(f.cause, ValueError) for f in report.findings)
    with pytest.raises(ValueError, match="three is not a shape"):  # without the matrix, as it was
        gradcheck(Bad.apply, x, check_forward_ad=True, seed=0)


@on_torch
@pytest.mark.parametrize("modes", [["R"], ["RR"], ["FR"], ["RF", "RR"]])
def test_what_the_function_itself_raises_comes_through_in_every_mode(x, modes):
    """A rule would be blamed for it where modes of second order are asked for alone."""

    def f(x):
        raise ValueError("three is not a shape")

    with pytest.raises(ValueError, match="three is not a shape"):
        examine(f, x, modes=modes, seed=0)


@on_torch
@pytest.mark.parametrize("mode", ["RR", "FR"])
def test_what_only_the_rule_raises_is_a_finding_of_its_mode(x, rule, mode):
    def backward(x, w):
        raise ValueError("three is not a shape")

    report = examine(rule(lambda x: x**4, backward), x, modes=[mode], seed=0)

    assert report.verdict is Verdict.FAIL, str(report)
    assert "raises ValueError: three is not a shape" in str(report)


@on_torch
def test_a_wrong_third_derivative_is_seen_by_order_three_only(x, rule):
    def backward(x, w):
        here = x.detach()  # the second derivative of the quartic is held fixed
        return w * (4 * here**3 + 12 * here**2 * (x - here))

    quartic = rule(lambda x: x**4, backward)
    right = examine(quartic, x, modes=["R", "RR"], seed=0)
    wrong = examine(quartic, x, modes=["R", "RR", "RRR"], seed=0)

    assert right, right
    assert wrong_in(wrong.modes) == ["RRR"]
    assert "a third derivative is at fault" in str(wrong)


@on_torch
def test_modes_of_gradcheck_raise_where_one_of_them_is_wrong(x):
    right, wrong = torch_cube(), torch_cube(jvp_cut=True)

    assert gradcheck(right, x, modes=["R", "F", "RR", "RF"], seed=0)
    assert gradcheck(wrong, x, modes=["R", "F", "RR"], seed=0)
    with pytest.raises(AssertionError, match="reverse mode over forward mode: 1 of"):
        gradcheck(wrong, x, modes=["R", "F", "RR", "RF"], seed=0)


@on_torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize(("planted", "wrong"), [({}, []), ({"jvp_cut": True}, ["RF"])])
def test_other_dtypes(dtype, planted, wrong, x):
    report = examine(
        torch_cube(**planted), x.to(getattr(torch, dtype)), order=2, modes=RULES["torch"], seed=0
    )

    assert wrong_in(report.modes) == wrong


@on_torch
@pytest.mark.parametrize("wrong", [False, True])
def test_several_inputs_and_outputs(wrong, x):
    f = torch_cube(jvp_cut=wrong)

    report = examine(
        lambda a, b: {"p": f(a) * b, "s": torch.sin(b)},
        (x, x + 1),
        order=2,
        modes=RULES["torch"],
        seed=0,
    )

    assert wrong_in(report.modes) == (["RF"] if wrong else [])


@on_torch
def test_second_order_costs_at_most_four_and_a_half_times_the_first(x):
    for f in (torch.sin, torch.prod, lambda x: torch.outer(x, x.exp())):  # no ladder is climbed
        work = []
        for order in (1, 2):
            counts = examine(f, x, order=order, seed=0).counts
            work.append(counts["evaluations"] + counts["vjps"] + counts["jvps"])
        assert work[1] <= 4.5 * work[0], work


@on_torch
def test_orders_and_modes_that_contradict_are_refused(x):
    with pytest.raises(InputError, match="order=4"):
        examine(torch.sin, x, order=4)
    with pytest.raises(InputError, match="beyond order=1"):
        examine(torch.sin, x, order=1, modes=["RR"])


@on_torch
def test_a_report_as_data_has_its_ways(x):
    data = examine(torch.sin, x, order=1, seed=0).to_dict()

    assert data["ways"] == {way: {"R": "PASS", "F": "PASS"} for way in WAYS["torch"]}


# ---------------------------------------------------------------- JAX alone

on_jax = pytest.mark.parametrize("adjudge_backend", ["jax"], indirect=True)


@on_jax
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


@on_jax
def test_what_differs_under_jit_is_reported_apart(compiling, jax, jnp, x):
    backend = compiling(lambda f: jax.jit(lambda x: f(x) + 0 * x + 1e-5 * jnp.cos(x)))

    report = examine(jnp.sin, x, order=1, backend=backend, seed=0)

    assert set(report.ways["eager"].values()) == {Verdict.PASS}
    assert report.verdict is Verdict.FAIL, report
    assert "the function has another value under jit" in str(report)
    assert {f.way for f in report.findings if f.verdict is Verdict.FAIL} == {"jit"}
    assert examine(jnp.sin, x, order=1, backend=compiling(jax.jit), seed=0)


@on_jax
def test_compilation_can_be_left_out_and_asked_for_without_an_order(jnp, x):
    assert list(examine(jnp.sin, x, order=1, compile=False, seed=0).ways) == ["eager"]
    report = examine(jnp.sin, x, modes=["R"], compile=True, seed=0)
    assert report.ways == {"eager": {"R": Verdict.PASS}, "jit": {"R": Verdict.PASS}}


@on_jax
def test_a_derivative_that_is_wrong_where_it_is_compiled_says_so_in_each_line(
    compiling, jax, jnp, x
):
    backend = compiling(lambda f: jax.jit(lambda x: f(x) + 0.01 * (x - jax.lax.stop_gradient(x))))

    report = examine(jnp.sin, x, order=1, backend=backend, seed=0)
    said = str(report).splitlines()

    assert report.modes == {"R": Verdict.FAIL, "F": Verdict.FAIL}, report
    assert set(report.ways["eager"].values()) == {Verdict.PASS}
    assert "MISMATCH: jit: d out[" in said[0]
    assert any("(R, F wrong in jit)" in line for line in said)
    assert any(line.startswith("  forward mode (jit): ") for line in said)


@pytest.mark.backend("torch")
@pytest.mark.filterwarnings("ignore")  # PyTorch warns of what it compiles
def test_what_pytorch_compiles_is_wrong_in_every_check(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))

    def f(x, wrong=0.0):
        if torch.compiler.is_compiling():
            return x.sin() + wrong * (x - x.detach())
        return x.sin()

    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    for _ in range(2):  # a check must leave to the compiler what the next one asks of it
        asked = {"compile": True, "seed": 0, "blame": False}
        report = examine(partial(f, wrong=0.01), x, **asked)
        assert report.verdict is Verdict.FAIL
        assert "MISMATCH: compiled: d out[" in report.headline
        assert "reverse mode (compiled): " in str(report)
    assert examine(f, x, **asked)


@on_jax
def test_arguments_that_are_no_arrays_stay_as_they_are_under_jit(jnp, x):
    def f(x, options, *, power):
        return jnp.sin(x) ** power if options["deep"] else x

    report = examine(f, (x, {"deep": True}), kwargs={"power": 2}, order=1, seed=0)

    assert report, report
    assert set(report.ways["jit"].values()) == {Verdict.PASS}


@on_jax
def test_a_function_that_cannot_be_compiled_is_judged_as_it_is(jnp, x):
    def f(x):
        return jnp.sin(x) if float(x[0]) > 0 else x  # numbers decide

    report = examine(f, x, modes=["R"], compile=None, order=1, seed=0)

    assert set(report.ways["jit"].values()) == {Status.UNSUPPORTED}
    assert "ConcretizationTypeError" in str(report)


@on_jax
def test_forward_over_forward_alone_is_judged_by_differences(cube, x):
    right = cube()

    assert examine(right, x, modes=["F", "FF"], seed=0)
    assert examine(right, x, modes=["FF", "RF"], seed=0)


@on_jax
@pytest.mark.parametrize("order", [1, 2])
def test_a_function_that_does_not_run_under_jit_is_right_in_the_ways_in_which_it_runs(
    adjudge_backend, order
):
    def branches(x):
        return x * x if bool(x.sum() > -10) else x

    report = examine(branches, adjudge_backend.array([0.3, -0.7]), order=order)

    assert report.verdict is Verdict.PASS
    assert set(report.ways["jit"].values()) == {Status.UNSUPPORTED}
    with pytest.raises(TypeError, match="boolean"):  # asked for by name, it is not passed over
        examine(branches, adjudge_backend.array([0.3, -0.7]), order=order, compile=True)


@on_jax
def test_a_function_of_one_number_passes_in_second_order(adjudge_backend):
    xp = adjudge_backend.xp

    report = examine(lambda x: xp.sin(x) * x, adjudge_backend.array(0.75), modes=SECOND, seed=0)

    assert report, report
    assert report.modes == dict.fromkeys(SECOND, Verdict.PASS)

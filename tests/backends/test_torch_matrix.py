"""Every composition of modes in PyTorch, eager and by torch.func, and the rule that is accused."""

from contextlib import suppress

import pytest

from adjudge import InputError, Status, Verdict, examine, gradcheck
from adjudge.findings import JudgedBy

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch

pytestmark = pytest.mark.backend("torch")

SECOND = ["R", "F", "RR", "FR", "RF", "FF"]
WAYS = ["eager", "torch.func"]
RULES = ["R", "F", "RR", "FR", "RF"]
"""But for FF, in which PyTorch 2.13 loses the outer tangent of every custom function."""


@pytest.fixture
def x():
    return torch.tensor([0.3, -1.2, 2.5, 0.8, -0.4], dtype=torch.float64)


def cube(*, vjp=1.0, jvp=1.0, vjp_cut=False, jvp_cut=False, inner=None):
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


def wrong_in(report):
    return [mode for mode, outcome in report.modes.items() if outcome is Verdict.FAIL]


@pytest.mark.parametrize("order", [1, 2])
def test_right_rules_pass_in_every_mode_and_way(order, x):
    report = examine(lambda x: torch.sin(x) * x, x, order=order, seed=0)

    assert report, report
    assert list(report.modes) == SECOND[: 2 if order == 1 else 6]
    assert list(report.ways) == WAYS
    assert set(report.ways["torch.func"].values()) == {Verdict.PASS}
    assert "every composition is right" in str(report)
    assert examine(cube(), x, order=order, modes=RULES[: 2 if order == 1 else 5], seed=0)


def test_forward_over_forward_mode_of_a_custom_function_is_seen_to_lose_the_outer_tangent(x):
    report = examine(cube(), x, order=2, seed=0)

    outer = torch.func.jvp(
        lambda x: torch.func.jvp(cube(), (x,), (torch.ones_like(x),))[1],
        (x,),
        (torch.ones_like(x),),
    )[1]
    if torch.equal(outer, 6 * x):
        pytest.skip(f"PyTorch {torch.__version__} has it right")
    assert wrong_in(report) == ["FF"]
    assert "the jvp of the JVP rule is at fault" in str(report)


def test_eager_forward_mode_does_not_nest_and_the_other_way_is_a_pass_with_a_note(x):
    report = examine(torch.sin, x, order=2, seed=0)

    assert report.ways["eager"]["FF"] is Status.UNSUPPORTED
    assert report.modes["FF"] is Verdict.PASS
    (note,) = [f for f in report.findings if f.status is Status.UNSUPPORTED]
    assert note.note
    assert "Nested forward mode AD" in note.detail.found
    assert JudgedBy(("torch.func",)) == note.remedy
    assert "judged by torch.func" in str(report)


@pytest.mark.parametrize(
    ("planted", "wrong", "sentence"),
    [
        ({"vjp": 1.01}, ["R"], "the VJP rule is at fault (R wrong; right: F, RR, FR, RF)"),
        ({"jvp": 1.01}, ["F"], "the JVP rule is at fault (F wrong; right: R, RR, FR, RF)"),
        ({"vjp": -1.0, "jvp": -1.0}, ["R", "F"], "the JVP and the VJP rule are at fault"),
        ({"vjp_cut": True}, ["RR", "FR"], "the derivative of the VJP rule is at fault"),
        ({"jvp_cut": True}, ["RF"], "the vjp of the JVP rule is at fault"),
        ({"inner": {"vjp": 1.001}}, ["RR"], "the vjp of the VJP rule (double backward) is at"),
        ({"inner": {"jvp": 0.999}}, ["FR"], "the jvp of the VJP rule is at fault"),
        ({"inner": {"vjp": 1 + 1e-6}}, ["RR"], "the vjp of the VJP rule (double backward) is at"),
    ],
)
def test_the_matrix_shows_which_rule_is_wrong(planted, wrong, sentence, x):
    report = examine(cube(**planted), x, order=2, modes=RULES, seed=0)

    assert report.verdict is Verdict.FAIL
    assert wrong_in(report) == wrong
    assert sentence in str(report)
    for way in WAYS:
        assert [m for m, outcome in report.ways[way].items() if outcome is Verdict.FAIL] == wrong


def test_what_differs_under_torch_func_is_reported_apart(x):
    right, wrong = cube(), cube(jvp=1.01)

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


def test_a_function_that_torch_func_cannot_take_is_judged_in_eager_mode(x):
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx, w):
            return w * torch.cos(ctx.saved_tensors[0])

    report = examine(Sine.apply, x, modes=["R", "RR"], order=2, seed=0)

    assert report, report
    assert set(report.ways["eager"].values()) == {Verdict.PASS}
    assert set(report.ways["torch.func"].values()) == {Status.UNSUPPORTED}
    assert "setup_context" in str(report)


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


def test_what_the_function_itself_raises_comes_through(x):
    def f(x):
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError):
        examine(f, x, order=2)


def test_third_order_has_all_fourteen_words(x):
    report = examine(torch.sin, x, order=3, seed=0)

    assert report, report
    assert len(report.modes) == 14
    assert report.ways["eager"]["RFR"] is Verdict.PASS
    assert report.ways["torch.func"]["FFF"] is Verdict.PASS


def test_a_wrong_third_derivative_is_seen_by_order_three_only(x):
    class Quartic(torch.autograd.Function):
        """`x⁴`, whose second derivative is held fixed."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**4

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            here = x.detach()
            return w * (4 * here**3 + 12 * here**2 * (x - here))

    right = examine(Quartic.apply, x, modes=["R", "RR"], seed=0)
    wrong = examine(Quartic.apply, x, modes=["R", "RR", "RRR"], seed=0)

    assert right, right
    assert wrong_in(wrong) == ["RRR"]
    assert "a third derivative is at fault" in str(wrong)


def test_modes_of_gradcheck_raise_where_one_of_them_is_wrong(x):
    right, wrong = cube(), cube(jvp_cut=True)

    assert gradcheck(right, x, modes=["R", "F", "RR", "RF"], seed=0)
    assert gradcheck(wrong, x, modes=["R", "F", "RR"], seed=0)
    with pytest.raises(AssertionError, match="RF comparisons"):
        gradcheck(wrong, x, modes=["R", "F", "RR", "RF"], seed=0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize(("planted", "wrong"), [({}, []), ({"jvp_cut": True}, ["RF"])])
def test_other_dtypes(dtype, planted, wrong, x):
    report = examine(cube(**planted), x.to(getattr(torch, dtype)), order=2, modes=RULES, seed=0)

    assert wrong_in(report) == wrong


@pytest.mark.parametrize("wrong", [False, True])
def test_several_inputs_and_outputs(wrong, x):
    f = cube(jvp_cut=wrong)

    report = examine(
        lambda a, b: {"p": f(a) * b, "s": torch.sin(b)}, (x, x + 1), order=2, modes=RULES, seed=0
    )

    assert wrong_in(report) == (["RF"] if wrong else [])


def test_second_order_costs_at_most_four_times_the_first(x):
    for f in (torch.sin, torch.prod, lambda x: torch.outer(x, x.exp())):  # no ladder is climbed
        work = []
        for order in (1, 2):
            counts = examine(f, x, order=order, seed=0).counts
            work.append(counts["evaluations"] + counts["vjps"] + counts["jvps"])
        assert work[1] <= 4 * work[0], work


def test_orders_and_modes_that_contradict_are_refused(x):
    with pytest.raises(InputError, match="order=4"):
        examine(torch.sin, x, order=4)
    with pytest.raises(InputError, match="beyond order=1"):
        examine(torch.sin, x, order=1, modes=["RR"])


def test_a_report_as_data_has_its_ways(x):
    data = examine(torch.sin, x, order=1, seed=0).to_dict()

    assert data["ways"] == {way: {"R": "PASS", "F": "PASS"} for way in WAYS}

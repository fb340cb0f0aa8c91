"""What a check may leave unchecked: modules, closures, unmarked inputs, special numbers."""

import functools
import warnings

import numpy as np
import pytest
from frameworks import adjudge_torch, torch

import adjudge
from adjudge import Status, Verdict

pytest.importorskip("torch")
pytestmark = pytest.mark.backend("torch")


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(2, 4, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def product(rule):
    """`product(factor)(x, w) = x w`, whose gradient by w is multiplied by the factor."""

    def make(factor):
        return rule(lambda x, w: x * w, lambda x, w, c: (c * w, factor * c * x))

    return make


@pytest.fixture
def scaled(product):
    """`scaled(factor)`: a module with a parameter, a buffer and an input, whose parameter has a
    gradient that is multiplied by the factor.
    """

    def make(factor, dtype=None):
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(1)
                self.weight = torch.nn.Parameter(torch.randn(2, 4, dtype=dtype or torch.float64))
                self.register_buffer("calls", torch.zeros((), dtype=torch.float64))

            def forward(self, x):
                self.calls += 1
                return product(factor)(x, self.weight).sin()

        return Scaled()

    return make


def notes(report, status=Status.UNCHECKED):
    return [finding.detail for finding in report.findings if finding.status is status]


def names(report):
    return sorted(name for detail in notes(report) for name in getattr(detail, "names", ()))


# -- a module as the function


@pytest.mark.parametrize("seed", range(3))
def test_a_module_has_its_parameters_checked(scaled, x, seed):
    assert adjudge.gradcheck(scaled(1.0), x, seed=seed)
    with pytest.raises(adjudge.GradcheckError, match=r"d parameters\['weight'\]"):
        adjudge.gradcheck(scaled(1.01), x, seed=seed)


def test_a_module_is_as_before(scaled, x):
    module = scaled(1.0)
    weight, memory = module.weight, module.weight.data_ptr()
    before = {name: value.clone() for name, value in module.state_dict().items()}

    adjudge.gradcheck(module, x)

    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert module.weight is weight
    assert memory == weight.data_ptr()
    assert weight.grad is None


def test_wrt_leaves_the_parameters_alone(scaled, x):
    wrong = scaled(1.5)

    assert adjudge.gradcheck(wrong, x, wrt=0)
    assert not adjudge.examine(wrong, x, wrt="parameters['weight']")


def test_a_frozen_parameter_is_not_checked(scaled, x):
    wrong = scaled(1.5)
    wrong.weight.requires_grad_(False)

    assert adjudge.gradcheck(wrong, x)


@pytest.mark.parametrize("options", [{"order": 1}, {"check_forward_ad": True}])
def test_a_module_is_checked_in_every_way(x, options):
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()).double()

    report = adjudge.gradcheck(module, x, **options)

    assert report
    assert [] == names(report)


def test_a_module_of_integers_has_its_parameters_checked():
    embedding = torch.nn.Embedding(5, 3).double()

    report = adjudge.gradcheck(embedding, torch.tensor([1, 3, 3]))

    assert report.counts["nonzero"]
    embedding.register_forward_hook(lambda module, args, y: _doubled(y))
    with pytest.raises(adjudge.GradcheckError, match=r"parameters\['weight'\]"):
        adjudge.gradcheck(embedding, torch.tensor([1, 3, 3]))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("inputs", [(torch.tensor([1, 3, 3]),), ()], ids=["integers", "none"])
def test_what_a_function_of_no_floating_input_closes_over_is_checked(scaled, inputs, dtype):
    """An embedding, and a loss that takes nothing."""
    options = {"captured": True, "backend": None if inputs else "torch"}
    right, wrong = (scaled(factor, getattr(torch, dtype)) for factor in (1.0, 1.01))
    one = torch.ones((), dtype=right.weight.dtype)

    for seed in range(3):
        assert adjudge.gradcheck(lambda *i: right(one), inputs, seed=seed, **options)
        with pytest.raises(adjudge.GradcheckError, match=r"captured\['wrong.weight'\]"):
            adjudge.gradcheck(lambda *i: wrong(one), inputs, seed=seed, **options)


@pytest.mark.parametrize(
    ("f", "inputs", "said"),
    [
        (lambda: 1.0, (), "which engine differentiates"),
        (lambda i: i * 1.0, (torch.tensor([1, 2]),), "closes over none that is marked"),
        (adjudge.ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), np.ones(2), "does not know what"),
    ],
    ids=["nothing", "integers", "by hand"],
)
def test_captured_without_anything_to_check_is_refused_in_words(f, inputs, said):
    with pytest.raises(adjudge.InputError, match=said):
        adjudge.gradcheck(f, inputs, captured=True)


def _doubled(y):
    y = y.clone()
    y.register_hook(lambda w: 2 * w)
    return y


def test_second_derivatives_of_a_module_are_checked(scaled, x):
    assert adjudge.gradgradcheck(torch.nn.Bilinear(4, 4, 2).double(), (x, x.detach().sin()))
    assert not adjudge.gradgradcheck(scaled(1.5), x, raise_exception=False)


# -- what a function closes over


def closures(call, w):
    """The ways in which a function may come by a tensor."""

    class Holder:
        def __init__(self):
            self.weight = w

        def method(self, x):
            return call(x, self.weight)

        def __call__(self, x):
            return call(x, self.weight)

    several = {"weights": [w]}
    return {
        "captured['w']": lambda x: call(x, w),
        "captured['several.weights.[0]']": lambda x: call(x, several["weights"][0]),
        "captured['self.weight']": Holder().method,
        "captured['weight']": Holder(),
        "captured['w.']": functools.partial(lambda w, x: call(x, w), w),
    }


WAYS = range(5)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_function_closes_over_is_named(product, x, way):
    w = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    name, f = list(closures(product(1.5), w).items())[way]

    report = adjudge.gradcheck(f, x)

    assert ["captured['args[0]']" if name.endswith(".']") else name] == names(report)
    assert "captured=True" in str(report)
    assert [] == names(adjudge.gradcheck(f, x, captured=False))


@pytest.mark.parametrize("seed", range(3))
def test_what_a_function_closes_over_is_checked(product, x, seed):
    w = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    before, memory = w.detach().clone(), w.data_ptr()
    options = {"captured": True, "seed": seed}

    for right in closures(product(1.0), w).values():
        assert [] == names(adjudge.gradcheck(right, x, **options))
    for wrong in closures(product(1.01), w).values():
        with pytest.raises(adjudge.GradcheckError, match=r"d captured\["):
            adjudge.gradcheck(wrong, x, **options)
    assert torch.equal(before, w)
    assert memory == w.data_ptr()
    assert w.grad is None


@pytest.mark.parametrize("seed", range(3))
def test_a_module_that_a_function_closes_over_is_checked_in_single_precision(scaled, seed):
    x = torch.randn(2, 4)
    right, wrong = scaled(1.0, torch.float32), scaled(1.01, torch.float32)

    report = adjudge.gradcheck(lambda x: right(x), x, captured=True, seed=seed)
    failed = adjudge.examine(lambda x: wrong(x), x, captured=True, seed=seed)

    assert "formula judged in float64" in str(report)
    assert torch.float32 is right.weight.dtype
    assert Verdict.FAIL is failed.verdict
    assert "captured['wrong.weight']" in str(failed)


def test_second_derivatives_by_what_a_function_closes_over_are_checked(product, x):
    w = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)

    assert adjudge.gradgradcheck(lambda x: (x * w).sin(), x, captured=True)
    wrong = adjudge.gradgradcheck(
        lambda x: product(1.5)(x, w).sin(), x, captured=True, raise_exception=False
    )
    assert Verdict.FAIL is wrong.verdict


def test_forward_mode_of_what_a_function_closes_over_is_unsupported(x):
    w = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)

    report = adjudge.examine(lambda x: x * w, x, captured=True, check_forward_ad=True)

    assert Verdict.PASS is report.modes["R"]
    assert Status.UNSUPPORTED in {finding.status for finding in report.findings}


def test_what_was_computed_before_the_check_is_refused(x):
    w = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    before = w.exp()

    with pytest.raises(adjudge.InputError, match="computed from others before the check"):
        adjudge.gradcheck(lambda x: x * before, x, captured=True)


def test_what_a_function_closes_over_is_as_before_where_it_raises(x):
    w = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    before, calls = w.detach().clone(), []

    def f(x):
        calls.append(x)
        if len(calls) > 4:
            raise RuntimeError("the fifth call")
        return x * w

    with pytest.raises(RuntimeError, match="the fifth call"):
        adjudge.gradcheck(f, x, captured=True)
    assert torch.equal(before, w)


@pytest.mark.parametrize("check", [*["library"] * 10, *["door"] * 3])
def test_an_input_that_a_function_closes_over_is_checked_there(product, x, check):
    """PyTorch's own tests of modules pass the parameters, and call the module that holds them."""
    x = x[0].detach().requires_grad_()
    w = torch.randn(4, dtype=torch.float64, requires_grad=True)
    gradcheck = adjudge.gradcheck if check == "library" else adjudge_torch.gradcheck

    assert gradcheck(lambda a, _: product(1.0)(a, w), (x, w))
    with pytest.raises(adjudge.GradcheckError, match=r"d captured\['inputs\[1\]'\]"):
        gradcheck(lambda a, _: product(1.01)(a, w), (x, w))


def test_the_door_warns_of_an_input_that_is_not_used(x):
    w = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)

    with pytest.warns(UserWarning, match=r"does not use inputs\[1\].*closes over captured\['w'\]"):
        adjudge_torch.gradcheck(lambda a, b: a * w, (x, x.detach().clone().requires_grad_()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adjudge_torch.gradcheck(lambda a, b: a * b * w, (x, x))


# -- inputs that are not marked, and numbers that hide mistakes


def test_an_unmarked_input_beside_a_marked_one_is_named(product, x):
    report = adjudge.gradcheck(product(1.5), (x, x.detach().exp()))

    assert ["inputs[1]"] == names(report)
    assert not adjudge.examine(product(1.5), (x, x.detach().exp()), wrt=[0, 1])
    assert [] == names(adjudge.gradcheck(product(1.0), (x, x.detach().exp().requires_grad_())))


def hidden(rule):
    """Rules that are wrong, with numbers at which they are right all the same, and others."""
    real = torch.tensor([0.3, -1.1], dtype=torch.float64)
    return {
        "a missing conjugate": (
            rule(lambda z: z.exp(), lambda z, w: w * z.exp()),
            real + 0j,
            torch.complex(real, real.flip(0)),
        ),
        "equal numbers": (
            rule(lambda x: x.exp(), lambda x, w: w * x.exp().flip(0)),
            torch.full((2,), 0.7, dtype=torch.float64),
            real,
        ),
        "nothing but ones": (
            rule(lambda x: x**3, lambda x, w: 3 * w * x),
            torch.ones(2, dtype=torch.float64),
            real,
        ),
        "a missing transpose": (
            rule(lambda a: a @ a, lambda a, w: a @ w + w @ a),
            torch.outer(real, real),
            torch.outer(real, real + 1),
        ),
        "nothing but zeros": (
            rule(lambda x: x.exp(), lambda x, w: w * (1 + x)),
            torch.zeros(2, dtype=torch.float64),
            real,
        ),
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "words",
    [
        "a missing conjugate",
        "a missing transpose",
        "equal numbers",
        "nothing but ones",
        "nothing but zeros",
    ],
)
def test_numbers_that_hide_a_mistake_are_named_with_what_finds_it(rule, words, seed):
    f, special, ordinary = hidden(rule)[words]

    report = adjudge.gradcheck(f, special, seed=seed)

    assert ["inputs[0]"] == names(report)
    assert words in str(report)
    assert "points=" in str(report)
    assert not adjudge.examine(f, special, points=[(ordinary,)], seed=seed)
    assert [] == names(adjudge.gradcheck(torch.exp, ordinary, seed=seed))


def test_inputs_of_the_same_numbers_at_which_swapped_gradients_do_not_show_are_named(rule, x):
    swapped = rule(lambda a, b: a * b, lambda a, b, w: (w * a, w * b))
    a, b = x[0].detach(), x[1].detach()

    report = adjudge.gradcheck(swapped, (a, a.clone()))

    assert ["inputs[0]", "inputs[1]"] == names(report)
    assert "gradients that are swapped" in str(report)
    assert not adjudge.examine(swapped, (a, b))
    assert [] == names(adjudge.gradcheck(torch.mul, (a, b)))


@pytest.mark.parametrize("seed", range(3))
def test_an_input_on_which_nothing_depends_here_is_named(product, x, seed):
    """Behind dead units a gradient may be wrong by any factor."""
    dead, alive = torch.full((4,), -9.0).double(), torch.full((4,), 9.0).double()

    def f(x, w, shift):
        return x + product(1.5)((x + shift).relu(), w)

    inputs = [x[0].detach(), x[1].detach()]
    report = adjudge.gradcheck(f, (*inputs, dead), wrt=[0, 1], seed=seed)

    assert ["inputs[1]"] == names(report)
    assert "no output depends on its entries here" in str(report)
    assert not adjudge.examine(f, (*inputs, alive), wrt=[0, 1], seed=seed)
    assert [] == names(adjudge.gradcheck(torch.mul, tuple(inputs), seed=seed))


# -- outputs that are detached on purpose


def with_metric(sine, wrap=lambda y, metric: (y, metric)):
    """A function with an output that is detached on purpose."""
    return lambda x: wrap(sine(x), x.detach().norm())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("outputs", "wrap"),
    [
        (0, lambda y, metric: (y, metric)),
        ([1], lambda y, metric: [metric, y]),
        ("out['loss']", lambda y, metric: {"loss": y, "metric": metric}),
        (["out[0]['loss']"], lambda y, metric: ({"loss": y}, {"metric": metric})),
    ],
)
def test_outputs_says_which_outputs_are_checked(scaled_sin, x, outputs, wrap, seed):
    options = {"outputs": outputs, "seed": seed}

    assert adjudge.gradcheck(with_metric(torch.sin, wrap), x, **options)
    assert not adjudge.examine(with_metric(scaled_sin(1.01), wrap), x, **options)
    assert adjudge.gradgradcheck(with_metric(torch.sin, wrap), x, **options)


def test_the_remedy_of_a_detached_output_names_outputs(x):
    report = adjudge.examine(with_metric(torch.sin), x)

    assert {Status.DETACHED} == {finding.status for finding in report.findings}
    assert "outputs=[0, ...]" in str(report)


@pytest.mark.parametrize("outputs", ["out[2]", 5, [], "out['loss']", "outer"])
def test_outputs_that_are_none_are_refused_by_name(x, outputs):
    with pytest.raises(adjudge.InputError, match="outputs="):
        adjudge.gradcheck(with_metric(torch.sin), x, outputs=outputs)


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
def test_the_door_leaves_out_what_does_not_require_grad_as_pytorch_does(scaled_sin, x, check):
    theirs, ours = getattr(torch.autograd, check), getattr(adjudge_torch, check)
    f, wrong = with_metric(torch.sin), with_metric(scaled_sin(1.5))
    swapped = with_metric(torch.sin, lambda y, metric: (metric, y))

    assert theirs(f, x)
    for right in (f, swapped):
        with pytest.warns(UserWarning, match=r"output [01] of .* does not require grad, yet it"):
            assert ours(right, x)
    with pytest.warns(UserWarning, match="does not require grad"):
        assert not ours(wrong, x, raise_exception=False)


def test_the_door_does_not_warn_of_an_output_that_stands_still(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adjudge_torch.gradcheck(lambda x: (x.sin(), torch.zeros_like(x)), x)


def test_the_door_checks_outputs_of_which_none_requires_grad(x):
    assert not adjudge_torch.gradcheck(lambda x: x.detach().sin(), x, raise_exception=False)
    assert not adjudge_torch.gradcheck(with_metric(torch.detach), x, raise_exception=False)

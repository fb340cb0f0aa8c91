"""What is read of a docstring, and how a search goes on."""

import itertools

import numpy as np
import pytest

from adjudge.ghostwriter.inputs import (
    Call,
    Constant,
    Numbers,
    Values,
    constructors,
    examples,
    no_array,
    search,
)
from adjudge.ghostwriter.subjects import Parameter, parameters_of


def doc(*lines):
    return "Examples:\n\n" + "".join(f"    >>> {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("code", "argument"),
    [
        ("torch.randn(2, 3, requires_grad=True)", Numbers(-2, 2, (2, 3))),
        ("np.random.rand(4)", Numbers(0.1, 0.9, (4,))),
        ("jax.random.normal(key, (2, 3))", Numbers(-2, 2, (2, 3))),
        ("rng.uniform(0, 1, size=5)", Numbers(0.1, 0.9, (5,))),
        ("torch.randint(1, 20, (3,), dtype=torch.long)", Numbers(1, 20, (3,), whole=True)),
        ("torch.empty(3, dtype=torch.long).random_(5)", Numbers(0, 5, (3,), whole=True)),
        ("torch.full((2,), 7)", Numbers(7, 8, (2,), whole=True)),
        ("jnp.array([[1.0, 2.0]])", Values([[1.0, 2.0]])),
        ("2 * torch.rand(2, N)", Numbers(0.1, 0.9, (2, 3))),
        ("torch.eye(3)", Numbers(0.5, 2, (3, 3))),
        ("-1", Constant(-1)),
        ("something_else()", None),
    ],
)
def test_an_array_of_an_example_is_known_by_its_maker(code, argument):
    calls = list(examples(doc("N = 3", f"x = {code}", "f(x)"), "f"))

    assert calls == ([] if argument is None else [Call((("x", argument),))])


def test_objects_of_examples_have_their_constructor():
    text = doc("m = nn.Linear(20, out=30)", "y = m(torch.randn(128, 20))")

    (call,) = (one for one in examples(text, "Linear") if one.arrays)

    assert call.constructor == Call((("", Constant(20)),), (("out", Constant(30)),))
    assert call.arrays == [("", Numbers(-2, 2, (128, 20)))]


def test_examples_are_not_executed(tmp_path):
    path = tmp_path / "made"
    text = doc(
        f"x = open({str(path)!r}, 'w')", f"f(open({str(path)!r}, 'w'))", "f(__import__('os'))"
    )

    assert list(examples(text, "f")) == []
    assert not path.exists()


def test_examples_that_are_large_or_no_examples_are_left_out():
    assert list(examples(doc("f(torch.randn(1000, 1000))"), "f")) == []
    assert list(examples(doc("f(torch.randn(3)"), "f")) == []
    assert list(examples("    >>> f(1)\n  wrong\n   >>>f(2)", "f")) == []


def test_what_is_drawn_is_what_the_code_draws():
    rng, again = np.random.default_rng(0), np.random.default_rng(0)
    specs = [Numbers(-2, 2, (2, 3)), Numbers(0, 4, (3,), whole=True), Values([1.0])]

    for spec in specs:
        code = eval(str(spec), {"rng": again})  # noqa: S307 our own code
        np.testing.assert_array_equal(spec.drawn(rng), code)


def test_a_compiled_function_has_the_parameters_of_its_documentation():
    def compiled(*args, **kwargs):
        "compiled(input: Tensor, dim=(0, 1), *, out=None) -> Tensor\n\nMore."

    found = parameters_of(compiled, "compiled")

    assert found == [
        Parameter("input", "Tensor"),
        Parameter("dim", required=False),
        Parameter("out", required=False, keyword=True),
    ]


@pytest.mark.parametrize(
    ("parameter", "given"),
    [
        (Parameter("dim", "int"), Constant(-1)),
        (Parameter("features", "int"), Constant(3)),
        (Parameter("eps", "float"), Constant(0.5)),
        (Parameter("mode", "Literal['a', 'b']"), Constant("a")),
        (Parameter("size", "tuple[int, int]"), Constant((3, 3))),
        (Parameter("x", "Optional[Tensor]"), Numbers(-2, 2, (2, 3))),
    ],
)
def test_a_parameter_is_given_what_its_annotation_and_name_say(parameter, given):
    call = next(search([Parameter("y", "Array"), parameter]))

    name, value = call.positional[1]
    assert name == parameter.name
    if isinstance(given, Constant):
        assert value == given
    else:
        assert isinstance(value, Numbers)


def test_a_search_tries_shapes_domains_and_constants():
    calls = list(itertools.islice(search([Parameter("x"), Parameter("y")]), 600))

    shapes = {tuple(one.shape for _, one in call.arrays) for call in calls}
    ranges = {tuple(one.low for _, one in call.arrays) for call in calls}
    assert {((2, 3), (3, 4)), ((2, 3), (2, 3)), ((2, 3), (3,))} <= shapes
    assert {(-2, -2), (0.1, 0.1), (1.5, 1.5), (-2, 0.1)} <= ranges
    assert len({str(call) for call in calls}) == len(calls)


def test_a_function_that_needs_nothing_is_called_only_where_it_says_that_it_takes_an_array():
    assert list(search([Parameter("level", required=False)])) == []
    assert list(search([Parameter("level", "str | None", required=False)])) == []
    assert next(search([Parameter("x", "Array", required=False)])).arrays


def test_a_constructor_is_given_constants():
    needed = [Parameter("in_features", "int"), Parameter("bias", "bool", required=False)]

    assert next(constructors(needed)) == Call(keyword=(("in_features", Constant(3)),))
    assert list(constructors([Parameter("x", "Tensor")])) == []


@pytest.mark.parametrize("name", ["path", "loss_fn", "model"])
def test_a_parameter_that_needs_something_else_is_named(name):
    assert no_array([Parameter("x"), Parameter(name)]) == name
    assert no_array([Parameter("x"), Parameter(name, required=False)]) == ""
    assert no_array([Parameter("x"), Parameter(name, "Tensor")]) == ""

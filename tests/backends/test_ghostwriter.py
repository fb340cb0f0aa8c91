"""Tests that are written for PyTorch and JAX: right and wrong functions, classes and rules."""

import sys
import textwrap

import pytest

from adjudge import InputError
from adjudge.findings import Verdict
from adjudge.ghostwriter import Written, write

TORCH = """
    import torch
    from typing import Optional

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return 3 * ctx.saved_tensors[0] ** 2 * g

    class WrongExp(torch.autograd.Function):
        @staticmethod
        def forward(x, scale: float):
            return torch.exp(scale * x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0] * g, None  # forgotten: scale

    class Layer(torch.nn.Module):
        def __init__(self, in_features, power: int = 3):
            super().__init__()
            self.linear = torch.nn.Linear(in_features, 4)

        def forward(self, x):
            return Cube.apply(self.linear(x))

    class WrongLayer(Layer):
        def forward(self, x):
            return torch.nn.functional.linear(x, WrongExp.apply(self.linear.weight, 0.1))

    def entropy(p):
        if not (p > 0).all():
            raise ValueError("p is not positive")
        return -(p * p.log()).sum()

    def dense(input: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None):
        return input @ weight.T

    def power(x, *, exponent: int):
        return x**exponent

    def wrong_power(x, *, exponent: int):
        return WrongExp.apply(x, 1.01) ** exponent

    def cross(input, target):
        '''
        >>> input = torch.randn(3, 5, requires_grad=True)
        >>> target = torch.randint(5, (3,), dtype=torch.int64)
        >>> cross(input, target)
        '''
        return torch.nn.functional.cross_entropy(input, target)

    def of_one(x, y):
        return torch.special.gammainc(x, y)

    def count(x):
        return (x > 0).sum()

    def metric(x):
        return x.detach() ** 2

    def steps(x):
        return torch.floor(x) + 0 * x

    def parse(text: str):
        raise AssertionError("called")
"""
RIGHT = ["Cube", "Layer", "entropy", "dense", "power", "cross", "of_one"]
WRONG = ["WrongExp", "WrongLayer", "wrong_power"]

CLASSES = """
    import torch
    from torch.nn import Module

    class Gauss:
        def __init__(self, mean, width):
            if not (width > 0).all():
                raise ValueError("the width is not positive")
            self.mean, self.width = mean, width

        @property
        def variance(self):
            return self.width**2

        def density(self, x):
            return torch.exp(-(((x - self.mean) / self.width) ** 2) / 2)

        def wrong_density(self, x):
            return self.density(x + (x - x.detach()))

        def entropy(self):
            return torch.log(self.width)

        @staticmethod
        def standard(x):
            return torch.exp(-x * x / 2)

        @classmethod
        def scores(cls, x, width):
            return cls(0 * x, width).density(x)

        def save(self, path):
            raise AssertionError("called")

        def _hidden(self, x):
            raise AssertionError("called")

    class Shifted(Gauss):
        def __init__(self, mean, width, *, shift: torch.Tensor = torch.tensor(0.5)):
            super().__init__(mean + shift, width)

        def wrong_density(self, x):
            return 2 * self.density(x)
"""

JAX = """
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def cube(x):
        return x**3

    cube.defvjp(lambda x: (x**3, x), lambda x, g: (3.03 * x**2 * g,))

    @jax.custom_jvp
    def quart(x):
        return x**4

    @quart.defjvp
    def _(x, v):
        return x[0]**4, 4.04 * x[0]**3 * v[0]

    @jax.jit
    def logarithm(x):
        return jnp.log(x)

    def never(x):
        return x * jnp.nan
"""


@pytest.fixture
def written(pytester, monkeypatch):
    """What is written for a source, and how it ends under pytest."""
    monkeypatch.syspath_prepend(pytester.path)

    def of(name: str, source: str, *, methods: bool = False) -> tuple[Written, pytest.RunResult]:
        (pytester.path / f"{name}.py").write_text(textwrap.dedent(source))
        sys.modules.pop(name, None)
        result = write(name, methods=methods, timeout=None)
        pytester.makepyfile(test_it=result.text)
        return result, pytester.runpytest_inprocess("-p", "no:cacheprovider")

    return of


def labels(written: Written, verdict: Verdict) -> list[str]:
    return [one.subject.label for one in written.tests if one.verdict is verdict]


@pytest.mark.backend("torch")
def test_functions_modules_and_autograd_functions_of_torch(written):
    result, outcome = written("planted_torch", TORCH)

    assert RIGHT == labels(result, Verdict.PASS)
    assert WRONG == labels(result, Verdict.FAIL)
    assert {
        "count": "it returns no array of floating-point numbers",
        "metric": "no derivative of it is recorded: its outputs are detached",
        "steps": "its value does not change with its inputs there",
        "parse": "no inputs were found for it",
    } == {one.name: one.reason for one in result.left_out}
    outcome.assert_outcomes(passed=len(RIGHT), failed=len(WRONG))
    for line in (
        "import planted_torch\nimport pytest\nimport torch\n",
        "adjudge_backend.check(planted_torch.Cube.apply, x)",
        "adjudge_backend.check(lambda x: planted_torch.WrongExp.apply(x, 0.5), x)",
        "torch.manual_seed(0)\n    layer = planted_torch.Layer(in_features=3).double()\n",
        "p = adjudge_backend.array(rng.uniform(0.1, 0.9, (2, 3)))",
        "rng.uniform(-2, 2, (2, 3)), rng.uniform(-2, 2, (4, 3))",
        "adjudge_backend.check(lambda x: planted_torch.power(x, exponent=3), x)",
        "rng.uniform(-2, 2, (3, 5)), rng.integers(0, 5, (3,))",
        "adjudge_backend.check(planted_torch.of_one, x, y, wrt=1)",
    ):
        assert line in result.text


@pytest.mark.backend("torch")
def test_methods_of_classes_are_functions_of_both_kinds_of_arguments(written):
    result, outcome = written("planted_classes", CLASSES, methods=True)

    names = ["variance", "density", "entropy", "standard", "scores"]
    right = [f"{kind}.{name}" for kind in ("Gauss", "Shifted") for name in names]
    assert sorted([*right, "Shifted.wrong_density"]) == sorted(labels(result, Verdict.PASS))
    assert ["Gauss.wrong_density"] == labels(result, Verdict.FAIL)
    assert {"Gauss.save", "Shifted.save"} == {one.name for one in result.left_out}
    outcome.assert_outcomes(passed=11, failed=1)
    for line in (
        "return planted_classes.Gauss(mean, width).density(x)\n",
        "return planted_classes.Gauss(mean, width).entropy()\n",
        "return planted_classes.Gauss(mean, width).variance\n",
        "adjudge_backend.check(planted_classes.Gauss.standard, x)\n",
        "return planted_classes.Shifted(mean, width, shift=shift).density(x)\n",
    ):
        assert line in result.text


@pytest.mark.backend("torch")
def test_methods_are_tried_on_demand_alone(written):
    with pytest.raises(InputError, match="has no function to test"):
        written("planted_classes", CLASSES)


@pytest.mark.backend("torch")
def test_the_engine_is_known_by_what_a_class_derives_from(pytester, monkeypatch):
    monkeypatch.syspath_prepend(pytester.path)
    (pytester.path / "planted_below.py").write_text(textwrap.dedent(TORCH))
    source = "import planted_below\nfrom planted_below import Layer\n__all__ = ['Layer', Layer]\n"
    (pytester.path / "planted_above.py").write_text(source)

    result = write("planted_above", timeout=None)

    assert ["Layer"] == labels(result, Verdict.PASS)


@pytest.mark.backend("jax")
def test_custom_rules_and_compiled_functions_of_jax(written):
    result, outcome = written("planted_jax", JAX)

    assert ["logarithm"] == labels(result, Verdict.PASS)
    assert ["cube", "quart"] == labels(result, Verdict.FAIL)
    assert {"never": "its values are not finite at any input that was tried"} == {
        one.name: one.reason for one in result.left_out
    }
    outcome.assert_outcomes(passed=1, failed=2)


@pytest.mark.backend("torch", "jax")
def test_a_module_that_uses_two_engines_needs_one_to_be_named(pytester, monkeypatch):
    monkeypatch.syspath_prepend(pytester.path)
    source = "import torch, jax\ndef square(x): return x * x\n"
    (pytester.path / "planted_both.py").write_text(source)

    with pytest.raises(InputError, match=r"uses jax and torch\n  say which: --backend jax"):
        write("planted_both", timeout=None)
    texts = [write("planted_both", backend=one, timeout=None).text for one in ("torch", "jax")]

    assert ['["torch"], indirect=True' in texts[0], '["jax"], indirect=True' in texts[1]] == [
        True
    ] * 2

"""Containers that PyTorch knows, and this library does not: outputs of models, say."""

from collections import OrderedDict

import pytest

from adjudge import Verdict, examine, gradcheck

torch = pytest.importorskip("torch")
pytree = pytest.importorskip("torch.utils._pytree")


class Output(OrderedDict):
    """A mapping with a class of its own, as libraries of models return."""


class Nameless:
    """A container that was registered without names of its children."""

    def __init__(self, *parts):
        self.parts = parts


def keys_of(output):
    return [(pytree.MappingKey(key), value) for key, value in output.items()], list(output)


pytree.register_pytree_node(
    Output,
    lambda output: (list(output.values()), list(output)),
    lambda values, keys: Output(zip(keys, values, strict=True)),
    flatten_with_keys_fn=keys_of,
)
pytree.register_pytree_node(
    Nameless, lambda one: (list(one.parts), None), lambda parts, _: Nameless(*parts)
)


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, w):
        (x,) = ctx.saved_tensors
        return 1.001 * w * x.cos()


def point():
    return torch.tensor([0.3, 0.7, 1.1], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda y: Output(loss=y.exp(), logits=y), "out['logits'][2]"),
        (lambda y: Nameless(y.exp(), y), "out[1][2]"),
        (lambda y: {"a": Output(logits=(y, 3))}, "out['a']['logits'][0][2]"),
    ],
    ids=["a mapping", "without names", "nested"],
)
def test_a_registered_container_of_outputs(make, name):
    right = examine(lambda x: make(x.sin()), point(), modes=["R"], seed=0)
    wrong = examine(lambda x: make(Sine.apply(x)), point(), mode="full", modes=["R"], seed=0)

    assert right.verdict is Verdict.PASS, str(right)
    assert wrong.verdict is Verdict.FAIL
    assert any(one.of == name for one in wrong.entries), [one.of for one in wrong.entries]


def test_a_registered_container_of_inputs():
    inputs = Output(a=point(), b=point() + 1)

    gradcheck(lambda given: given["a"] * given["b"].sin(), inputs)
    report = examine(lambda given: Sine.apply(given["b"]), inputs, modes=["R"], seed=0)

    assert report.verdict is Verdict.FAIL
    assert "inputs['b']" in str(report) or "inputs[0]['b']" in str(report)

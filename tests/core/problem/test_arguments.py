"""Trees: leaves, their accessor paths, and the way back."""

from collections import OrderedDict, namedtuple

import pytest

from adjudge.engine.contract import Expansion
from adjudge.problem.calls import flatten

Pair = namedtuple("Pair", ["w", "b"])


class Module:
    """A node that only its framework can flatten."""

    def __init__(self, w, b):
        self.w, self.b = w, b


def nothing(node):
    return None


def modules(node):
    if not isinstance(node, Module):
        return None
    return Expansion((node.w, node.b), (".w", ".b"), lambda leaves: Module(*leaves))


@pytest.mark.parametrize(
    ("tree", "names"),
    [
        (1.0, ("x",)),
        (None, ("x",)),
        ((), ()),
        ({}, ()),
        ((1, [2, 3]), ("x[0]", "x[1][0]", "x[1][1]")),
        ({"b": 1, "a": {"c": None}}, ("x['a']['c']", "x['b']")),
        (Pair(1, (2,)), ("x.w", "x.b[0]")),
        (OrderedDict(z=1, a=2), ("x['z']", "x['a']")),
        ({1: "one", 2: "two"}, ("x[1]", "x[2]")),
    ],
)
def test_leaves_are_named_by_the_code_that_reaches_them(tree, names):
    flat = flatten(tree, "x", nothing)

    assert names == flat.names
    assert tree == flat.rebuild(flat.leaves)
    assert list(flat.leaves) == [eval(name, {"x": tree}) for name in names]  # noqa: S307


def test_other_leaves_go_into_the_same_places():
    flat = flatten({"a": [1, 2], "b": None}, "x", nothing)

    rebuilt = flat.rebuild(["one", "two", "three"])

    assert {"a": ["one", "two"], "b": "three"} == rebuilt


def test_a_node_of_a_framework_is_expanded_below_the_leaves_of_optree():
    flat = flatten([Module(1, 2), 3], "x", modules)

    rebuilt = flat.rebuild((10, 20, 30))

    assert ("x[0].w", "x[0].b", "x[1]") == flat.names
    assert (1, 2, 3) == flat.leaves
    assert (10, 20, 30) == (rebuilt[0].w, rebuilt[0].b, rebuilt[1])


def test_the_signature_tells_structures_apart_and_not_values():
    trees = [(1, 2), [1, 2], (1, (2,)), {"a": 1, "b": 2}, [Module(1, 2)]]

    signatures = [flatten(tree, "x", modules).signature for tree in trees]

    assert all(a != b for k, a in enumerate(signatures) for b in signatures[:k])
    assert flatten((3, 4), "x", modules).signature == signatures[0]
    assert flatten([Module(3, 4)], "x", modules).signature == signatures[4]

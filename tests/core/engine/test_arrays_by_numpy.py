"""Arrays of an engine that is not Array API, described and copied by way of NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest

from adjudge.engine import ArrayInfo, ArraysByNumpy
from adjudge.errors import NotSupportedError


class Boxes(ArraysByNumpy):
    """Arrays of NumPy in boxes, of two kinds and on two devices."""

    floating = ("float64", "float32", "bfloat16", "complex64")

    def info(self, array):
        return ArrayInfo(array.held.shape, array.dtype, array.device)

    def devices(self):
        return ["here", "there"]

    def numpy(self, array):
        return array.held

    def tensor(self, values, dtype, device, like=None):
        held = np.array(values, dtype="float32" if dtype == "bfloat16" else dtype)
        kind = getattr(like, "kind", "plain")
        return SimpleNamespace(held=held, dtype=dtype, device=device or "here", kind=kind)


@pytest.fixture
def boxes():
    return Boxes("boxes", None)


@pytest.mark.parametrize(
    ("dtype", "eps"),
    [("float64", 2.0**-52), ("float32", 2.0**-23), ("bfloat16", 2.0**-7), ("complex64", 2.0**-23)],
)
def test_what_can_be_differentiated(boxes, dtype, eps):
    x = boxes.make(np.ones(2), dtype)

    assert boxes.is_differentiable(x)
    assert boxes.is_complex(x) == (dtype == "complex64")
    assert boxes.eps(x) == eps
    assert not boxes.is_differentiable(boxes.make(np.ones(2), "int32"))


def test_copies_are_alike_and_apart(boxes):
    x = boxes.make(np.array([0.5, -1.0]), "float32", "there")
    x.kind = "variable"

    for copy in (boxes.copy(x), boxes.from_host(boxes.to_host(x), x), boxes.place(x, "there")):
        assert boxes.info(copy) == boxes.info(x)
        assert copy.kind == "variable"
        assert not np.shares_memory(copy.held, x.held)
    assert boxes.place(x, "here").device == "here"
    wide = boxes.widen(x)
    assert (wide.dtype, wide.device) == ("float64", "there")
    assert boxes.to_host(x).dtype == "float64"
    np.testing.assert_array_equal(boxes.to_host(wide), [0.5, -1.0])


def test_what_the_engine_lacks_is_said(boxes):
    x = boxes.make(np.ones(2), "complex64")

    assert boxes.to_host(x).dtype == "complex128"
    with pytest.raises(NotSupportedError, match="complex128"):
        boxes.widen(x)
    with pytest.raises(NotSupportedError, match="float16"):
        boxes.make(np.ones(2), "float16")
    for refused in (
        lambda: boxes.make(np.ones(2), "float64", "elsewhere"),
        lambda: boxes.place(x, "elsewhere"),
    ):
        with pytest.raises(NotSupportedError, match="here, there"):
            refused()

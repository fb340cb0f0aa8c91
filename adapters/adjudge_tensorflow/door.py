"""`tf.test.compute_gradient`, answered by adjudge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.check import checked_signature, problem_of
from adjudge.errors import InputError
from adjudge.estimate import Differences, at_fixed_step
from adjudge.floats import Vector
from adjudge.problem import Problem, Reverse, Tangent, observe
from adjudge_tensorflow.backend import TensorflowBackend, tf

Jacobians = tuple[NDArray[Any], ...]


@checked_signature
def compute_gradient(
    f: Callable[..., Any], x: Sequence[Any], delta: float | None = None
) -> tuple[Jacobians, Jacobians]:
    """Answers like `tf.test.compute_gradient`, with its signature: the Jacobians of `f` by the
    engine and by differences, for each argument.

    Each is a matrix with a row for each number of `f(*x)` and a column for each number of the
    argument, of the argument's dtype; a complex entry is two numbers. The differences are steps of
    several lengths, extrapolated, where TensorFlow takes one of 1/1024. Nothing is judged:
    `adjudge.gradcheck(f, x)` raises for a wrong gradient. Differences on purpose: docs/parity.md.

    Args:
        f: Returns one tensor of floating or complex numbers.
        x: The arguments of `f`, as a list or tuple of what TensorFlow makes tensors of.
        delta: The step of all differences. By default (`None`) it is chosen.

    Raises:
        ValueError: `x` is no list or tuple; an argument or an output is not floating; there are
            several outputs; an empty output has a gradient that is not zero.
    """
    __tracebackhide__ = True
    if not isinstance(x, list | tuple):
        raise InputError(
            f"`x` must be a list or tuple of values convertible to a Tensor, not a {type(x)}",
            "pass [x] where there is one argument",
        )
    tensors = tuple(map(tf.convert_to_tensor, x))
    backend = TensorflowBackend()
    for k, tensor in enumerate(tensors):
        if not backend.arrays.is_differentiable(tensor):
            raise InputError(
                f"x[{k}] is of dtype {tensor.dtype.name}", "close over it, or pass floats"
            )

    def called(*arguments: Any) -> Any:  # parameters of a module are no arguments
        return f(*arguments)

    with backend.environment.isolation(tensors):
        problem = problem_of(called, tensors, {"backend": backend})
        base = observe(problem)
        if len(base.Y.leaves) != 1:
            said = f"f returns {len(base.Y.leaves)} tensors of floats"
            raise InputError(said, "return one; what NumPy computes is none")
        reverse = Reverse(problem)
        rows = [reverse.pull(reverse.cotangent(base, w))[0] for w in np.eye(base.Y.size)]
        if not rows:
            empty, _ = reverse.pull(reverse.cotangent(base, np.zeros(0), zeros=True))
            if empty.any():
                raise InputError("Empty tensor with nonzero gradients", "mend the gradient")
        columns = [_difference(problem, base, k, delta) for k in range(problem.X.size)]
    theoretical = np.array(rows).reshape(base.Y.size, problem.X.size)
    numerical = np.array(columns).reshape(problem.X.size, base.Y.size).T

    def parts(jacobian: NDArray[Any]) -> Jacobians:
        return tuple(
            jacobian[:, part].astype(tensor.dtype.real_dtype.as_numpy_dtype)
            for part, tensor in zip(problem.X.slices, tensors, strict=True)
        )

    return parts(theoretical), parts(numerical)


def _difference(problem: Problem, base: Any, k: int, delta: float | None) -> Vector:
    """Returns the derivative of the outputs along coordinate `k`."""
    leaf = next(j for j, part in enumerate(problem.X.slices) if k < part.stop)
    unit = np.zeros(problem.X.size)
    unit[k] = 1.0
    tangent = Tangent((leaf,), unit, problem.length_scales[k], k)
    if delta is not None:
        return at_fixed_step(problem, base, tangent, delta).estimate.value
    return Differences(problem, base).along(tangent).estimate.value

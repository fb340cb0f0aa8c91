"""Gradients, Jacobians and Hessians as vjps and jvps.

These are the forms in which optimisers take derivatives, as SciPy's `minimize` and `least_squares`
do. A matrix may be dense, a sparse matrix or array of SciPy, or a linear operator: of these only
`shape`, `@` and `.T` are used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import array_api_compat
import numpy as np

from adjudge.engine.arrays import from_numpy, has_namespace, is_array, of_numbers
from adjudge.engine.contract import AutodiffBackend
from adjudge.errors import Catching, InputError, Source, described, running

FORMS: Mapping[str, tuple[str, str]] = {
    "vjp": ("vjp({x}, w)", "for a gradient give grad=, for a Jacobian jac="),
    "jvp": ("jvp({x}, {v})", "for a gradient give grad=, for a Jacobian jac="),
    "double_vjp": ("double_vjp({x}, w, u)", "for a Hessian give grad= and hess="),
    "grad": ("grad({x})", "for a vjp(x, w) give vjp="),
    "jac": ("jac({x})", "for a vjp(x, w) give vjp=, for a jvp(x, v) give jvp="),
    "hess": ("hess({x})", "for the product with a vector, hessp(x, p), give hessp="),
    "hessp": ("hessp({x}, p)", "for the whole Hessian, hess(x), give hess="),
}
"""How each derivative is called, and what to give for what is called otherwise."""


def misfit(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Returns the parameters of a function that cannot be called with these arguments, as code;
    `None` where it can, or does not say.

    A ufunc of NumPy would take one argument too many for the array to write into.
    """
    if isinstance(function, np.ufunc):
        return None if len(args) <= function.nin else "(x)" if function.nin == 1 else "(x1, x2)"
    try:
        signature = inspect.signature(function)
    except ValueError:
        return None  # as that of some functions that are not written in Python
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return str(signature)
    return None


def require_fit(
    name: str,
    function: Callable[..., Any],
    of: object,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Raises `InputError` where `function`, given as the derivative `name` of `of`, says that it
    cannot be called with these arguments. It is asked where a call has raised `TypeError`.
    """
    signature = misfit(function, args, kwargs)
    if signature is None:
        return
    form, other = FORMS[name]
    several = len(args) > form.count(",") + 1
    form = form.format(x="*x" if several else "x", v="*v" if several else "v")
    if kwargs:
        form = f"{form[:-1]}, {', '.join(f'{key}=...' for key in kwargs)})"
    found = f"{getattr(function, '__name__', type(function).__name__)}{signature}"
    # What takes no more than the inputs is likely the derivative itself.
    inputs = args[: len(args) // 2 if name == "jvp" else len(args) - 1]
    alike = name not in ("vjp", "jvp") or misfit(function, inputs, kwargs) is None
    other_form = other if alike else "take these arguments"
    raise InputError(
        f"{name} of {of} is called as {form}, and {found} was given",
        _how_to_fit(name, function, args, kwargs) or other_form,
    )


def _how_to_fit(
    name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str:
    """Returns what to do where a derivative could be called in another way that is known; the empty
    text where it could not.
    """
    if kwargs and misfit(function, args, {}) is None:
        return "the keyword arguments of the function are handed to its derivative as well"
    if name == "jvp" and len(args) > 2 and misfit(function, args[:2], kwargs) is None:
        return "each input and each tangent is an argument of its own: jvp(x0, x1, v0, v1)"
    if name not in ("vjp", "double_vjp"):
        return ""
    *x, w = args
    parts = w if isinstance(w, tuple | list) else ()
    if len(parts) > 1 and misfit(function, (*x, *parts), kwargs) is None:
        probe, like = ("w", "y") if name == "vjp" else ("u", "x")
        return f"{probe} has the structure of {like}, so that it is one {type(w).__name__} here"
    if name != "vjp":
        return ""
    pair: Any = None
    with Catching(), running(Source.DERIVATIVE):
        pair = function(*x, **kwargs)
    if isinstance(pair, tuple) and len(pair) == 2 and callable(pair[1]):
        return "a function of x that returns y and the function of w is pullback="
    return ""


def called(
    name: str,
    function: Callable[..., Any],
    of: object,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Returns what the derivative `name` of `of` returns. Raises `InputError` where it takes other
    arguments.
    """
    if isinstance(function, np.ufunc):
        require_fit(name, function, of, args, kwargs)
    try:
        return function(*args, **kwargs)
    except Exception as error:
        if isinstance(error, TypeError):
            require_fit(name, function, of, args, kwargs)
        if name == "vjp" and _swapped(function, args, kwargs):
            error.add_note("adjudge: vjp= is called as vjp(x, w), and runs as vjp(w, x)")
        raise


def _swapped(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Returns whether a vjp of one array that raised gives a gradient as `vjp(w, x)`."""
    shape = getattr(args[0], "shape", None)
    if len(args) != 2 or shape is None:
        return False
    with suppress(Exception):
        found = function(*args[::-1], **kwargs)
        return tuple(getattr(found, "shape", ())) == tuple(shape)
    return False


class Algebra:
    """What is computed with the arrays of inputs: by the Array API where they have it, or else by
    what each engine has to have, its `arrays` and a few functions of its `xp`.
    """

    def __init__(self, engine: AutodiffBackend | None = None) -> None:
        """`engine` owns the inputs; `None` where that is not known, as in a call by the user."""
        self.engine = engine

    def __reduce__(self) -> tuple[type[Algebra], tuple[()]]:
        """An engine holds modules and settings of its process: in another one it is not known."""
        return Algebra, ()

    def is_array(self, thing: object) -> bool:
        """Returns whether this is an array."""
        return is_array(thing, self.engine)

    def is_operator(self, matrix: Any) -> bool:
        """Returns whether products are all that is known of a matrix: it is no array and not
        sparse.
        """
        return hasattr(matrix, "__matmul__") and not (
            hasattr(matrix, "__array__") or hasattr(matrix, "toarray") or self.is_array(matrix)
        )

    def of_numbers(self, values: Any, args: Sequence[Any]) -> Any:
        """Returns numbers, or lists of them, as an array like the first one among `args`."""
        return of_numbers(values, args, self.engine)

    def placed(self, found: Any, x: Any) -> Any:
        """Returns the array `found` as one of the kind of `x`. Integers get its dtype."""
        engine = self._only(x)
        if engine is not None:
            if not engine.owns(found):
                return from_numpy(engine, np.asarray(found), x)
            if not engine.arrays.is_differentiable(found):
                return from_numpy(engine, engine.arrays.to_host(found), x)
            return found
        xp = array_api_compat.array_namespace(x)
        if array_api_compat.array_namespace(found) is not xp:
            found = xp.asarray(np.asarray(found))
        if xp.isdtype(found.dtype, ("bool", "integral")):
            found = xp.astype(found, x.dtype)
        return found

    def reshaped(self, array: Any, shape: Sequence[int]) -> Any:
        """Returns the array with another shape."""
        return self._namespace(array).reshape(array, tuple(shape))

    def total(self, array: Any) -> Any:
        """Returns the sum of the entries, without axes."""
        return self._namespace(array).sum(array)

    def transposed(self, M: Any) -> Any:
        """Returns the transpose of a matrix, which may be sparse or an operator."""
        engine = self._only(M)
        return M.T if engine is None else engine.xp.permute_dims(M, (1, 0))

    def product(self, M: Any, v: Any, shape: Sequence[int], *, conjugate: bool = False) -> Any:
        """Returns `M v`, or `conj(M) v`, with a shape."""
        engine, xp = self._only(v), self._namespace(v)
        if engine is None:
            conj = conjugate and xp.isdtype(v.dtype, "complex floating")
        else:
            conj = conjugate and engine.arrays.is_complex(v)
        flat = xp.conj(self.reshaped(v, (-1,))) if conj else self.reshaped(v, (-1,))
        if engine is None:
            image = xp.asarray(M @ flat)  # that of `np.matrix` is no ndarray
        elif engine.owns(M):  # a column, since not every engine multiplies vectors
            image = xp.matmul(M, self.reshaped(flat, (-1, 1)))
        else:
            # a sparse matrix, or an operator of SciPy, computes in NumPy
            host = isinstance(getattr(M, "dtype", None), np.dtype)
            image = M @ (engine.arrays.to_host(flat) if host else flat)
            if not engine.owns(image):
                image = from_numpy(engine, np.asarray(image), v)
        return self.reshaped(xp.conj(image) if conj else image, shape)

    def _only(self, array: Any) -> AutodiffBackend | None:
        """Returns the engine of an array that has no Array API of its own."""
        engine = self.engine
        if engine is None or has_namespace(array) or not engine.owns(array):
            return None
        return engine

    def _namespace(self, array: Any) -> Any:
        engine = self._only(array)
        return array_api_compat.array_namespace(array) if engine is None else engine.xp

    def fitted(
        self,
        name: str,
        found: Any,
        of: str,
        x: Any,
        accepted: Sequence[tuple[int, ...]],
        shape: tuple[int, ...],
    ) -> Any:
        """Returns the derivative `found` by the input `x`, with this shape.

        Numbers, and arrays of integers, become arrays of the dtype of `x`, as with SciPy. Raises
        `InputError` where it is no array of one of the shapes `accepted`, and no matrix or operator
        of this shape.
        """
        if not hasattr(x, "shape"):
            raise InputError(
                f"{name}= is for inputs that are arrays, and one of {of} is a {type(x).__name__}",
                "return None for it, or give vjp=, whose gradients are structured as the inputs",
            )
        if isinstance(found, list | tuple) or str(getattr(found, "dtype", "")) == "object":
            with suppress(ValueError):  # of rows of several lengths
                found = self.of_numbers(np.asarray(found).tolist(), (x,))  # rows may be arrays
        else:
            found = self.of_numbers(found, (x,))
        if self.is_array(found):
            found = self.placed(found, x)
            if tuple(found.shape) in accepted or prod(found.shape) == prod(shape) == 1:
                return self.reshaped(found, shape)
        elif hasattr(found, "__matmul__") and tuple(getattr(found, "shape", ())) == shape:
            return found
        expected = accepted[0]
        remedy = f"return an array of shape {expected}"
        if len(expected) == 2 and tuple(getattr(found, "shape", ())) == expected[::-1]:
            remedy += ": rows are outputs and columns are inputs, and this looks transposed"
        elif found is None:
            remedy += ": is a `return` missing?"
        raise InputError(
            f"{name} of {of} returned {described(found)} for x of shape {tuple(x.shape)}", remedy
        )


class Jacobian:
    """The gradient `grad=`, or the Jacobian `jac=`, of a function that returns one array."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        forward: Callable[..., Any],
        of: str,
        algebra: Algebra,
    ) -> None:
        """`name` is `grad` or `jac`, and `of` is the function `forward` in messages."""
        self.name, self.function, self.forward, self.of = name, function, forward, of
        self.algebra = algebra
        self._y: tuple[int, ...] = ()
        """The shape of what `forward` returned, which a Jacobian of two axes does not tell."""

    def value(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the value of the function."""
        y = self.algebra.of_numbers(self.forward(*args, **kwargs), args)
        self._y = tuple(getattr(y, "shape", ()))
        return y

    def vjp(self, *args: Any, **kwargs: Any) -> Any:
        """Returns `J* w`, for the arguments `(*x, w)`."""
        *x, w = args
        blocks = self._blocks(x, self._shape_of(w), kwargs)
        product, transposed = self.algebra.product, self.algebra.transposed
        try:
            found = [
                None if J is None else product(transposed(J), w, of.shape, conjugate=True)
                for J, of in zip(blocks, x, strict=True)
            ]
        except NotImplementedError as error:
            raise InputError(
                f"{self.name} of {self.of} returned an operator without the product J* w: {error}",
                "define it (rmatvec=), or check J v alone: check_backward_ad=False, "
                "check_forward_ad=True",
            ) from error
        return found[0] if len(x) == 1 else tuple(found)

    def jvp(self, *args: Any, **kwargs: Any) -> Any:
        """Returns `J v`, for the arguments `(*x, *v)`."""
        x, v = args[: len(args) // 2], args[len(args) // 2 :]
        blocks = self._blocks(x, self._y, kwargs)
        parts = [
            self.algebra.product(J, tangent, self._y)
            for J, tangent in zip(blocks, v, strict=True)
            if J is not None and tangent is not None
        ]
        return sum(parts[1:], parts[0]) if parts else None

    def further(self, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """Returns the modes that a check at these inputs has beside reverse mode: forward mode, if
        the Jacobian is an operator, whose products `J v` and `J* w` are two functions.
        """
        if self.name == "grad":
            return ()
        found = called(self.name, self.function, self.of, args, kwargs)
        blocks = found if isinstance(found, tuple) and len(args) > 1 else (found,)
        return ("F",) if any(map(self.algebra.is_operator, blocks)) else ()

    def _shape_of(self, w: Any) -> tuple[int, ...]:
        if not self.algebra.is_array(w):
            raise InputError(
                f"{self.name}= is for a function that returns one array or number, and {self.of} "
                f"returns a {type(w).__name__}",
                f"give {self.name}=True where that is the value and the derivative, or else vjp=, "
                "whose cotangent has the structure of the output",
            )
        return tuple(w.shape)

    def _blocks(
        self, x: Sequence[Any], shape: tuple[int, ...], kwargs: Mapping[str, Any]
    ) -> list[Any]:
        """Returns the Jacobian with respect to each input, as a matrix; `None` where an input has
        none. `shape` is that of the output.
        """
        if self.name == "grad" and prod(shape) != 1:
            raise InputError(
                f"grad= is for a function of one number, and {self.of} returns shape {shape}",
                "give jac=, which returns the Jacobian",
            )
        found = called(self.name, self.function, self.of, x, kwargs)
        alone = only_array(x)
        if alone is not None and not (len(x) > 1 and isinstance(found, tuple)):
            blocks: list[Any] = [None] * len(x)
            blocks[alone] = self._block(found, shape, x[alone])
            return blocks
        if not isinstance(found, tuple | list) or len(found) != len(x):
            raise InputError(
                f"{self.name} of {self.of} returned {described(found)} for {len(x)} inputs",
                "return a tuple with one entry per positional input, None where there is none",
            )
        return [
            None if J is None else self._block(J, shape, of) for J, of in zip(found, x, strict=True)
        ]

    def _block(self, J: Any, shape: tuple[int, ...], x: Any) -> Any:
        """Returns the Jacobian of an output of this shape by the input `x`, as a matrix."""
        of_x = tuple(getattr(x, "shape", ()))
        size = prod(shape), prod(of_x)
        accepted = [of_x] if self.name == "grad" else [size, (*shape, *of_x)]
        if size[0] == 1:
            accepted.append(of_x)
        return self.algebra.fitted(self.name, J, self.of, x, accepted, size)


class Hessian:
    """The derivative of `w grad(x)`, from `hess=` or `hessp=`."""

    def __init__(self, gradient: Jacobian, name: str, function: Callable[..., Any]) -> None:
        """`name` is `hess` or `hessp`."""
        self.gradient, self.name, self.function = gradient, name, function
        self.algebra = gradient.algebra

    def vjp(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Returns the vjp of `(*x, w) -> w grad(*x)`, for the arguments `(*x, w, u)`."""
        *x, w, u = args
        k = self._place(x)
        u = u[k] if len(x) > 1 else u
        tangents = [u if j == k else None for j in range(len(x))]
        of_w = self.algebra.reshaped(self.gradient.jvp(*x, *tangents, **kwargs), w.shape)
        of_x: list[Any] = [None] * len(x)
        of_x[k] = self.algebra.total(w) * self._times(x, k, u, kwargs, transposed=True)
        return (*of_x, of_w)

    def jvp(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the jvp of `(*x, w) -> w grad(*x)`, for the arguments `(*x, w, *dx, dw)`."""
        half = len(args) // 2
        x, w, dx, dw = args[: half - 1], args[half - 1], args[half:-1], args[-1]
        k = self._place(x)
        of_w = self.gradient.vjp(*x, dw, **kwargs)
        of_x = self.algebra.total(w) * self._times(x, k, dx[k], kwargs)
        if len(x) == 1:
            return of_x + of_w
        return tuple(of_x + one if j == k else one for j, one in enumerate(of_w))

    def further(self, *x: Any, **kwargs: Any) -> tuple[str, ...]:
        """Returns the modes that a check at `x` has beside those of the gradient: reverse over
        reverse mode, which takes the transpose of a matrix; and forward over reverse mode for a
        product or an operator, which have none.
        """
        if self.name == "hessp":
            return ("FR",)
        found = called(self.name, self.function, self.gradient.of, x, kwargs)
        return ("FR" if self.algebra.is_operator(found) else "RR",)

    def _place(self, x: Sequence[Any]) -> int:
        """Returns the place of the input that the Hessian belongs to."""
        place = only_array(x)
        if place is None:
            raise InputError(
                f"{self.name}= is for one array, and {self.gradient.of} has several inputs",
                "join them in one array, or give vjp= and double_vjp=",
            )
        return place

    def _times(
        self,
        x: Sequence[Any],
        k: int,
        p: Any,
        kwargs: Mapping[str, Any],
        *,
        transposed: bool = False,
    ) -> Any:
        """Returns the Hessian with respect to the input `k`, or its transpose, times `p`.

        A product, or an operator, is taken to be symmetric, as SciPy takes it.
        """
        of, own, algebra = self.gradient.of, x[k], self.algebra
        shape = tuple(own.shape)
        if self.name == "hessp":  # SciPy calls hessp(x, p, *args)
            arguments = (*x[: k + 1], p, *x[k + 1 :])
            product = called(self.name, self.function, of, arguments, kwargs)
            return algebra.fitted(self.name, product, of, own, [shape], shape)
        found = called(self.name, self.function, of, x, kwargs)
        n = prod(shape)
        H = algebra.fitted(self.name, found, of, own, [(n, n), (*shape, *shape)], (n, n))
        if transposed and not algebra.is_operator(H):
            H = algebra.transposed(H)
        return algebra.product(H, p, shape)


def only_array(x: Sequence[Any]) -> int | None:
    """Returns the place of the only array among several inputs, or of the only input; `None` where
    there are other arrays.
    """
    places = [k for k, one in enumerate(x) if len(x) == 1 or hasattr(one, "shape")]
    return places[0] if len(places) == 1 else None

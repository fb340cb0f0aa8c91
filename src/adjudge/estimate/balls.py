"""Arrays of balls with their derivatives, and what each operation of the vocabulary does to them.

A ball is a midpoint with a radius that is proven (python-flint's `arb`, and `acb` where complex;
Johansson 2017), so that what is computed contains the true value. `Jets` are arrays of balls along
one or two tangents: numbers `a + b ε` with `ε² = 0`, nested for second derivatives (Griewank and
Walther 2008, chapter 13). A function has its value and its derivative in the table, and the
derivative is written with the operations themselves, which makes derivatives of every order.

A comparison of two balls that overlap, or of two numbers that are equal and move, has no answer.
Selections then take the hull of both branches, with no derivative (NaN) where these differ: what
comes out contains the truth, and is narrow only where the branches agree.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, reduce
from math import factorial
from operator import and_, eq, ge, gt, le, lt, methodcaller, or_
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Balls: TypeAlias = NDArray[Any]
"""An object array of `arb` or `acb`."""


NEARLY_ZERO = "0 +/- 1e-10000"
"""A motion that is zero of what moves nevertheless, far below all numbers of every dtype."""

MOST_TERMS = 20_000
"""A series of huge numbers would be added up for minutes. With so many terms, some milliseconds,
what has not converged is undefined. The value is ours."""


@cache
def flint() -> Any:
    """Returns python-flint, or raises `ImportError`."""
    return importlib.import_module("flint")


class UndecidedError(Exception):
    """An operation whose result is integers cannot be decided with the balls at hand."""


class Truth(NamedTuple):
    """An array of booleans, some of which may be undecided."""

    may: NDArray[np.bool_]
    """Where it can be true."""
    may_not: NDArray[np.bool_]
    """Where it can be false."""
    along: int = 0
    """The tangents along which what was compared moves, as the keys of `Jets.parts` count them."""


def known(values: NDArray[np.bool_]) -> Truth:
    """Returns booleans that are decided."""
    return Truth(values, ~values)


class Jets:
    """An array of balls, and its derivatives along tangents.

    `parts[0]` are the values; `parts[1]` the derivatives along a first tangent, `parts[2]` along a
    second one, and `parts[3]` the mixed second derivatives. What is zero is left out.
    """

    __slots__ = ("parts", "shape")

    def __init__(self, parts: Mapping[int, Balls]) -> None:
        """All parts are broadcast to the shape of the values."""
        self.shape = shape = np.shape(parts[0])
        self.parts: dict[int, Balls] = {}
        for key, given in parts.items():
            part = np.asarray(given, object)
            # NumPy takes as long to broadcast a few balls as they take to be multiplied.
            self.parts[key] = part if part.shape == shape else np.broadcast_to(part, shape)

    @property
    def value(self) -> Balls:
        """The values."""
        return self.parts[0]

    @property
    def moves(self) -> NDArray[np.bool_]:
        """Where a derivative may differ from zero."""
        found = np.zeros(self.shape, bool)
        for key, part in self.parts.items():
            if key:
                found |= ~is_zero(part)
        return found

    @property
    def is_complex(self) -> bool:
        """Whether it has complex entries."""
        acb = flint().acb
        return any(isinstance(one, acb) for part in self.parts.values() for one in part.flat)

    def map(self, linear: Callable[[Balls], Any]) -> Jets:
        """Returns a real-linear function of them."""
        return Jets({key: linear(part) for key, part in self.parts.items()})

    def moving(self, moves: NDArray[np.bool_]) -> Jets:
        """Returns these as sums of which terms move there: a motion that is zero is none that says
        that nothing moves.
        """
        return Jets({
            key: _moving(part, moves) if key else part for key, part in self.parts.items()
        })  # fmt: skip

    def split(self) -> tuple[Jets, Jets, int] | None:
        """Returns `a`, `b` and the number of ε for these as `a + b ε` in the last tangent; `None`
        where nothing moves.
        """
        bit = 1 << (max(self.parts).bit_length() - 1) if max(self.parts) else 0
        if not bit:
            return None
        return self.below(bit), self.beside(bit), bit

    def below(self, bit: int) -> Jets:
        """Returns `a` of `a + b ε`."""
        return Jets({key: part for key, part in self.parts.items() if not key & bit})

    def beside(self, bit: int) -> Jets:
        """Returns `b` of `a + b ε`."""
        found = {key ^ bit: part for key, part in self.parts.items() if key & bit}
        found.setdefault(0, zeros(self.shape))
        return Jets(found)

    def plus(self, other: Jets, bit: int) -> Jets:
        """Returns `a + b ε` for these as `a` and `other` as `b`."""
        return Jets({**self.parts, **{key | bit: part for key, part in other.parts.items()}})

    # ---------------------------------------------------------------- arithmetic

    def __neg__(self) -> Jets:
        return self.map(np.negative)

    def __add__(self, given: Operand) -> Jets:
        other = lifted(given)
        value = np.asarray(self.value + other.value)
        parts = {0: value}
        for key in (self.parts.keys() | other.parts.keys()) - {0}:
            both = [one.parts[key] for one in (self, other) if key in one.parts]
            added = np.broadcast_to(np.asarray(sum(both[1:], both[0]), object), value.shape)
            parts[key] = added if len(both) == 1 else _moving(added, ~is_zero(both[0]))
        return Jets(parts)

    def __mul__(self, other: Operand) -> Jets:
        return bilinear(np.multiply, self, lifted(other))

    def __sub__(self, other: Operand) -> Jets:
        return self.__add__(-lifted(other))

    def __truediv__(self, other: Operand) -> Jets:
        return self.__mul__(FUNCTIONS["reciprocal"](lifted(other)))

    def __rsub__(self, other: Operand) -> Jets:
        return lifted(other).__sub__(self)

    __radd__, __rmul__ = __add__, __mul__


Operand: TypeAlias = Any
"""Jets, an array of NumPy, a number or a ball."""


def lifted(value: Operand) -> Jets:
    """Returns a constant as jets: the exact values of floating numbers."""
    if isinstance(value, Jets):
        return value
    if isinstance(value, Truth):  # a mask that numbers are multiplied by
        if np.any(value.may & value.may_not):
            raise UndecidedError("it is not decided which entries a mask has")
        value = value.may
    array = np.asarray(value)
    if array.dtype == object:
        return Jets({0: array})
    module = flint()
    make = module.acb if array.dtype.kind == "c" else module.arb
    wide = array.astype({"b": int, "f": float, "c": complex}.get(array.dtype.kind, array.dtype))
    return Jets({0: np.frompyfunc(make, 1, 1)(wide)})  # of numbers of Python


def zeros(shape: tuple[int, ...]) -> Balls:
    """Returns exact zeros."""
    return np.full(shape, flint().arb(0), object)


def each(function: Callable[..., Any], *arrays: Balls) -> Balls:
    """Returns a function of balls, of each entry of these arrays."""
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)


def marks(question: Callable[..., bool], *arrays: Any) -> NDArray[np.bool_]:
    """Marks the entries of these arrays for which the answer is yes."""
    return np.asarray(np.frompyfunc(question, len(arrays), 1)(*arrays), bool)


_ARE_ZERO = np.frompyfunc(methodcaller("is_zero"), 1, 1)


def is_zero(balls: Balls) -> NDArray[np.bool_]:
    """Marks the balls that are exactly zero."""
    return np.asarray(_ARE_ZERO(balls), bool)


def _moving(motion: Any, moves: NDArray[np.bool_]) -> Any:
    """Returns a motion, and where it is zero although something moves, a ball around zero.

    The zero says that nothing moves, and `x * x` moves at 0 though its derivative is zero there:
    without this its square root had the derivative 0 and not none, since what does not move has one
    everywhere.
    """
    if not moves.any():
        return motion
    still = np.broadcast_to(moves, np.shape(motion))
    if not (still := still & is_zero(motion)).any():
        return motion
    return np.where(still, flint().arb(NEARLY_ZERO), motion)


def bilinear(product: Callable[[Balls, Balls], Any], x: Jets, y: Jets) -> Jets:
    """Returns a product of two jets: the rule of Leibniz over the sets of tangents."""
    parts: dict[int, Any] = {}
    values = [_moving(one.value, one.moves) for one in (x, y)]
    for left, a in x.parts.items():
        for right, b in y.parts.items():
            if not left & right:
                one = values[0] if right and not left else a
                two = values[1] if left and not right else b
                term, key = product(one, two), left | right
                parts[key] = parts[key] + term if key in parts else term
    return Jets(parts)


def function_of(
    value: Callable[..., Any], *derivatives: Callable[..., Jets] | None
) -> Callable[..., Jets]:
    """Returns an elementwise function of jets, from its value at balls and its partial derivatives
    as functions of jets; `None` stands for one that is not known.
    """

    def apply(*given: Operand) -> Jets:
        xs = [lifted(one) for one in given]
        last = max([max(x.parts) for x in xs])
        if not last:
            return Jets({0: each(value, *[x.value for x in xs])})
        bit = 1 << (last.bit_length() - 1)
        below = [x.below(bit) for x in xs]
        low = apply(*below)
        slope: Jets | None = None
        for x, derivative in zip(xs, derivatives, strict=True):
            if max(x.parts) < bit:  # it does not move along that tangent
                continue
            rate = derivative(*below) if derivative else lifted(flint().arb.nan())
            term = bilinear(partial(each, _times), rate, x.beside(bit))
            slope = term if slope is None else slope + term
        return low if slope is None else low.plus(slope, bit)

    return apply


def _cut(at: Callable[..., bool], function: Callable[..., Jets]) -> Callable[..., Jets]:
    """Returns a function that jumps across a branch cut, where the balls of python-flint go on:
    undefined at points of the cut, for which `at` holds, whose first coordinate moves.
    """

    def apply(*given: Operand) -> Jets:
        xs = [lifted(one) for one in given]
        y, nan = function(*xs), flint().arb.nan()
        if len(y.parts) == 1:
            return y
        on = marks(at, *np.broadcast_arrays(*(x.value for x in xs)))
        on &= np.broadcast_to(xs[0].moves, on.shape)
        return y.map(lambda part: np.where(on, nan, part)) if on.any() else y

    return apply


def _off(
    beside: Callable[[Any], bool], function: Callable[..., Jets], across: str = "imag"
) -> Callable[..., Jets]:
    """Returns a function of complex numbers, undefined on its branch cut.

    Args:
        beside: Says of the part along the axis of the cut whether it is certainly beside the cut.
        function: The function elsewhere.
        across: The other part, which is zero on the cut.
    """
    along = "real" if across == "imag" else "imag"

    def on(z: Any) -> bool:
        is_complex = isinstance(z, flint().acb)
        return is_complex and getattr(z, across).contains(0) and not beside(getattr(z, along))

    return _cut(on, function)


def _times(rate: Any, motion: Any) -> Any:
    """Returns the product, and zero where nothing moves, even if the rate is not defined."""
    if motion.is_zero():
        return motion
    return flint().arb(NEARLY_ZERO) if rate.is_zero() else rate * motion


# -------------------------------------------------------------------- comparisons and selections


def compared(x_: Operand, y_: Operand, certainly: Callable[[Any, Any], bool]) -> Truth:
    """Returns whether `certainly` holds of two numbers, which is undecided where it holds neither
    of the balls nor of none in them, and where the numbers are equal and move.

    `certainly` is one of Python's comparisons, which python-flint answers with true only where it
    holds for all points of both balls. Raises `UndecidedError` for an order of complex numbers.
    """
    x, y = lifted(x_), lifted(y_)
    if certainly is not eq and (x.is_complex or y.is_complex):
        raise UndecidedError("an order of complex numbers")
    gap, a, b = x - y, each(_at_infinity, x.value), each(_at_infinity, y.value)
    yes = marks(certainly, a, b)
    same = marks(lambda a, b: a.is_exact() and b.is_exact() and bool(a == b), a, b)
    apart = ~marks(overlap, a, b)
    still = ~gap.moves | marks(lambda one: not one.is_finite(), a)  # what is infinite stays so
    settled = apart | (same & still)
    return Truth(yes | ~settled, ~yes | ~settled, reduce(or_, gap.parts))


def _at_infinity(ball: Any) -> Any:
    """Returns a ball around infinity without its radius, and any other as it is."""
    infinite = not ball.is_finite() and isinstance(ball, flint().arb) and ball.rad().is_finite()
    return ball.mid() if infinite else ball


def chosen(condition: Truth, x_: Operand, y_: Operand) -> Jets:
    """Returns `x` where a condition holds and `y` elsewhere; the hull of both where it is undecided
    and they meet, and no derivative where they do not.
    """
    x, y = lifted(x_), lifted(y_)
    shape = np.broadcast_shapes(condition.may.shape, x.shape, y.shape)
    may, may_not = (np.broadcast_to(one, shape) for one in condition[:2])
    parts: dict[int, Balls] = {}
    open_ = may & may_not
    jump = np.zeros(shape, bool)
    for key in sorted(x.parts.keys() | y.parts.keys() | {0}):
        a, b = (np.broadcast_to(one.parts.get(key, zeros(())), shape) for one in (x, y))
        part = np.where(may, a, b)
        if open_.any():
            part = np.array(part, object)
            if not key:
                jump[open_] = ~marks(overlap, a[open_], b[open_])
            part[open_] = each(_hull, a[open_], b[open_])
        parts[key] = part
    for key in range(1, condition.along + 1):
        if jump.any() and key & condition.along == key:
            part = np.array(parts.get(key, zeros(shape)), object)
            part[jump] = flint().arb.nan()
            parts[key] = part
    return Jets(parts)


def _hull(a: Any, b: Any) -> Any:
    acb = flint().acb
    return acb(a).union(acb(b)) if isinstance(b, acb) else a.union(b)


def overlap(a: Any, b: Any) -> bool:
    """Returns whether two balls have a number in common."""
    acb = flint().acb
    return bool(acb(a).overlaps(b) if isinstance(b, acb) else a.overlaps(b))


def maximum(x: Operand, y: Operand) -> Jets:
    """Returns the larger one of two."""
    return chosen(compared(x, y, ge), x, y)


def minimum(x: Operand, y: Operand) -> Jets:
    """Returns the smaller one of two."""
    return chosen(compared(x, y, le), x, y)


def modulus(x_: Operand) -> Jets:
    """Returns the absolute value, also of complex numbers."""
    x = lifted(x_)
    if not x.is_complex:
        return chosen(compared(x, 0, ge), x, -x)
    if len(x.parts) == 1:
        return x.map(partial(each, abs))
    re, im = real(x), imaginary(x)
    return FUNCTIONS["sqrt"](re * re + im * im)


def sign(x_: Operand) -> Jets:
    """Returns x over its modulus, and zero at zero."""
    x = lifted(x_)
    if x.is_complex:
        return x / modulus(x)
    return chosen(compared(x, 0, gt), 1, chosen(compared(x, 0, lt), -1, 0))


def real(x: Jets) -> Jets:
    """Returns the real part."""
    return x.map(partial(each, lambda one: one.real))


def imaginary(x: Jets) -> Jets:
    """Returns the imaginary part, undefined where the number is."""
    return x.map(partial(each, imaginary_part))


def imaginary_part(one: Any) -> Any:
    """Returns the imaginary part of a ball; that of a real one that is undefined is, too."""
    return one if isinstance(one, flint().arb) and one.is_nan() else one.imag


def conjugate(x: Jets) -> Jets:
    """Returns the complex conjugate."""
    acb = flint().acb
    return x.map(partial(each, lambda z: z.conjugate() if isinstance(z, acb) else z))


def stairs(step: Callable[[Any], Any], jumps: Callable[[Any], bool]) -> Callable[[Operand], Jets]:
    """Returns a function that is constant between its jumps.

    Args:
        step: Gives its value at a ball: that of all points in it.
        jumps: Says whether it jumps at a number that is exact.
    """

    def apply(x_: Operand) -> Jets:
        x = lifted(x_)
        value = each(step, x.value)
        at_jump = marks(lambda n, one: not n.is_exact() or jumps(one), value, x.value)
        nan, zero = flint().arb.nan(), flint().arb(0)
        leaps = at_jump & x.moves  # what is made of the value follows both sides
        if leaps.any():
            beside = x.value[leaps] + flint().arb(NEARLY_ZERO)
            value = np.array(value, object)
            value[leaps] = each(step, beside)
        parts = {
            key: np.where(at_jump & ~is_zero(part), nan, zero) if key else value
            for key, part in x.parts.items()
        }
        return Jets(parts)

    return apply


def _trunc(one: Any) -> Any:
    if one >= 0:
        return one.floor()
    return one.ceil() if one <= 0 else one.floor().union(one.ceil())


def _round(one: Any) -> Any:
    half = flint().arb(0.5)
    up, down = (one + half).floor(), (one - half).ceil()
    if up.is_exact() and down.is_exact() and not bool(up == down):  # a tie: the even one
        return up if int(up.unique_fmpz()) % 2 == 0 else down
    return up.union(down)


floor = stairs(lambda one: one.floor(), lambda one: one.is_exact() and one.is_integer())
ceil = stairs(lambda one: one.ceil(), lambda one: one.is_exact() and one.is_integer())
trunc = stairs(_trunc, lambda one: one.is_exact() and one.is_integer() and not one.is_zero())
round_ = stairs(_round, lambda one: one.is_exact() and (one + flint().arb(0.5)).is_integer())


def remainder(x_: Operand, y_: Operand, whole: Callable[[Operand], Jets] = floor) -> Jets:
    """Returns `x - y whole(x / y)`."""
    x, y = lifted(x_), lifted(y_)
    return x - y * whole(x / y)


# -------------------------------------------------------------------- smooth functions


def _f(name: str) -> Callable[..., Jets]:
    """Returns a function of the table, which is looked up when it is called."""
    return lambda *xs: FUNCTIONS[name](*xs)


def _pi() -> Jets:
    return lifted(np.asarray(flint().arb.pi(), object))


def _positive(x: Any) -> bool:
    return bool(x > 0)


def _inside(x: Any) -> bool:
    return bool(x > -1) and bool(x < 1)


def _gauss(x: Jets) -> Jets:
    """Returns the derivative of erf."""
    return 2 * _exp(-(x * x)) / _sqrt(_pi())


def power(x_: Operand, y_: Operand) -> Jets:
    """Returns x to the power y. A constant integer may stand above any number, other powers above
    positive or complex ones, and a constant positive one above zero that does not move.
    """
    x, y = lifted(x_), lifted(y_)
    shape = np.broadcast_shapes(x.shape, y.shape)
    whole = marks(lambda n: n.is_exact() and n.imag.is_zero() and n.real.is_integer(), y.value)
    whole = np.broadcast_to(whole & ~y.moves, shape)
    if whole.all():
        return _whole_power(x, y)
    at_zero = marks(
        lambda one, n: one.is_zero() and n.real > 0, *np.broadcast_arrays(x.value, y.value)
    )
    at_zero &= ~np.broadcast_to(x.moves, shape)
    general = chosen(known(at_zero), 0, _exp(y * _f("log")(chosen(known(at_zero), 1, x))))
    if not whole.any():
        return general
    return chosen(known(whole), _whole_power(x, chosen(known(whole), y, 1)), general)


def _whole_power(x: Jets, n: Jets) -> Jets:
    """Returns x to powers that are constant integers."""
    n = Jets({0: n.value})
    slope = lambda x, n: n * _whole_power(x, n - chosen(compared(n, 0, eq), 0, 1))  # noqa: E731
    return function_of(_power, slope, None)(x, n)


def _power(x: Any, n: Any) -> Any:
    """Returns a ball to a power. One of infinite radius around infinity may be anything, and ends
    the process where python-flint 0.9 is asked for its power.
    """
    if isinstance(x, flint().arb) and not (x.rad().is_finite() or x.mid().is_finite()):
        return flint().arb.nan()
    return x**n


def _bessel(kind: str, n: int) -> Callable[..., Jets]:
    """Returns the Bessel function of a kind (`i`, `j`, `k`, `y`) and an order."""
    signs = {"i": (1, 1), "j": (1, -1), "y": (1, -1), "k": (-1, -1)}[kind]

    def slope(x: Jets) -> Jets:
        below, above = _bessel(kind, abs(n - 1)), _bessel(kind, n + 1)
        if n == 0:  # the functions of order -1 and 1 differ by their sign at most
            return above(x) if kind == "i" else -above(x)
        return (signs[0] * below(x) + signs[1] * above(x)) / 2

    return function_of(methodcaller(f"bessel_{kind}", n), slope)


def _polygamma(n: int) -> Callable[..., Jets]:
    def value(x: Any) -> Any:
        return x.digamma() if n == 0 else flint().acb(x).polygamma(n).real

    return function_of(value, lambda x: _polygamma(n + 1)(x))


def polygamma(n: Operand, x_: Operand) -> Jets:
    """Returns the derivative of the constant order n of digamma."""
    orders, x = lifted(n), lifted(x_)
    shape = np.broadcast_shapes(orders.shape, x.shape)
    numbers = np.broadcast_to(each(lambda one: int(one.unique_fmpz()), orders.value), shape)
    x = x.map(lambda part: np.broadcast_to(part, shape))
    found = [(numbers == k, _polygamma(k)) for k in sorted({*numbers.flat})]
    return reduce(
        lambda rest, one: chosen(known(one[0]), one[1](x), rest), found, lifted(np.zeros(shape))
    )


def _zeta(k: int) -> Callable[..., Jets]:
    """Returns the derivative of order k, by s, of the zeta function of Hurwitz."""

    def value(s: Any, q: Any) -> Any:
        return flint().acb_series([s, 1], k + 1).zeta(q)[k].real * factorial(k)

    def by_q(s: Jets, q: Jets) -> Jets:
        rate = -s * _zeta(k)(s + 1, q)
        return rate - k * _zeta(k - 1)(s + 1, q) if k else rate

    return function_of(
        value if k else lambda s, q: s.zeta(q), lambda s, q: _zeta(k + 1)(s, q), by_q
    )


def _gammaln(x: Any) -> Any:
    if not x < 0:
        return x.lgamma()
    arb = flint().arb
    return (arb.pi() / abs(arb.sin_pi(x))).log() - (1 - x).lgamma()


def _within(value: Any, *positive: Any) -> Any:
    """Returns a value, which is undefined where one of these numbers is not positive for certain:
    some functions go on there, and those of engines do not.
    """
    return value if all(one >= 0 for one in positive) else flint().arb.nan()


def _gamma_density(a: Jets, x: Jets) -> Jets:
    return _exp((a - 1) * _f("log")(x) - x - _f("gammaln")(a)) + _of_positive(a, x)


def rate_by_series(function: Callable[..., Any], k: int) -> Callable[..., Jets]:
    """Returns the derivative of an elementwise function by its operand k, from what the function
    makes of power series of python-flint; it is undefined where an operand may not be positive.

    Its own derivative along a tangent t comes from the coefficients c of ε² along the sum and the
    difference of t and the axis e of the operand: `D²f[e, t] = (c(e + t) - c(e - t)) / 2`.
    """

    def coefficient(n: int, *given: Any) -> Any:
        pairs = zip(given[: len(given) // 2], given[len(given) // 2 :], strict=True)
        return function(*(flint().acb_series([x, t], n + 1) for x, t in pairs))[n].real

    def apply(*xs: Jets) -> Jets:
        values = [x.value for x in xs]
        axis = [lifted(float(j == k)).value for j in range(len(xs))]
        parts = {0: each(partial(coefficient, 1), *values, *axis)}
        for key in {key for x in xs for key in x.parts} - {0}:
            along = [x.parts.get(key, zeros(())) for x in xs]
            ends = []
            for sign in (1, -1):
                tangents = [e + sign * t for e, t in zip(axis, along, strict=True)]
                ends.append(each(partial(coefficient, 2), *values, *tangents))
            still = reduce(and_, map(is_zero, along))
            parts[key] = np.where(still, flint().arb(0), _moving((ends[0] - ends[1]) / 2, ~still))
        return Jets(parts) + _of_positive(*xs)

    return apply


def _gammainc_series(a: Any, x: Any) -> Any:
    """Returns gammainc of power series (DLMF 8.5.1)."""
    front = (a * x.log() - x - (a + 1).lgamma()).exp()
    return front * _hypergeometric([], a + 1, x)


def _betainc_series(a: Any, b: Any, x: Any) -> Any:
    """Returns betainc of power series (DLMF 8.17.8), from the end that is nearer."""
    if not x[0].real < 1:
        return flint().acb_series([flint().arb.nan()] * x.prec, x.prec)
    if x[0].real > 0.5:
        return 1 - _betainc_series(b, a, 1 - x)
    beta = (a + 1).lgamma() + b.lgamma() - (a + b).lgamma()
    front = (a * x.log() + b * (1 - x).log() - beta).exp()
    return front * _hypergeometric([a + b], a + 1, x)


def _hypergeometric(above: Sequence[Any], below: Any, x: Any) -> Any:
    """Returns the hypergeometric function of power series, with a 1 above. So many terms are asked
    for as converge; what those left out can make is in the balls.
    """
    module = flint()
    sizes = [float(abs(one[0]).mid()) for one in (*above, below, x)]
    terms = 2 * (module.ctx.prec + sum(sizes))
    one = module.acb_series([1], x.prec)
    return module.acb_series.hypgeom([*above, one], [below], x, int(min(terms, MOST_TERMS)))


def _beta_density(a: Jets, b: Jets, x: Jets) -> Jets:
    gammaln = _f("gammaln")
    beta = gammaln(a) + gammaln(b) - gammaln(a + b)
    return _exp((a - 1) * _f("log")(x) + (b - 1) * _f("log1p")(-x) - beta) + _of_positive(a, b)


def _of_positive(*xs: Jets) -> Jets:
    """Returns zeros, which are undefined where one of the operands is not positive for certain."""
    zero = function_of(lambda *xs: _within(flint().arb(0), *xs), *(None for _ in xs))
    return zero(*(Jets({0: x.value}) for x in xs))


def _sinc(x_: Operand) -> Jets:
    """Returns sin(π x) / (π x); around zero, by its Taylor polynomial, whose first three terms have
    its value and its first three derivatives there.
    """
    x = lifted(x_)
    at_zero = known(is_zero(x.value))
    near = 1 - (_pi() * _pi() * x * x) / 6
    far = chosen(at_zero, 1, _pi() * x)
    return chosen(at_zero, near, _f("sin")(far) / far)


def _times_log(x_: Operand, logarithm: Jets) -> Jets:
    """Returns x times a logarithm, and zero where x is the constant zero."""
    x = lifted(x_)
    return chosen(known(is_zero(x.value) & ~x.moves), 0, x * logarithm)


def log_sum(x: Jets, **over: Any) -> Jets:
    """Returns log Σ exp x. No maximum is subtracted, since exponents of balls have no bounds."""
    return _f("log")(total(_exp(x), **over))


_exp, _sqrt = _f("exp"), _f("sqrt")

FUNCTIONS: dict[str, Callable[..., Jets]] = {
    "add": lambda x, y: lifted(x) + y,
    "subtract": lambda x, y: lifted(x) - y,
    "multiply": lambda x, y: lifted(x) * y,
    "divide": lambda x, y: lifted(x) / y,
    "negative": lambda x: -lifted(x),
    "reciprocal": function_of(lambda x: 1 / x, lambda x: -_f("square")(_f("reciprocal")(x))),
    "square": lambda x: lifted(x) * x,
    "pow": power,
    "sqrt": _off(_positive, function_of(methodcaller("sqrt"), lambda x: _f("rsqrt")(x) / 2)),
    "rsqrt": _off(
        _positive, function_of(methodcaller("rsqrt"), lambda x: _f("rsqrt")(x) / (-2 * x))
    ),
    "cbrt": function_of(
        lambda x: -(-x).root(3) if x < 0 else x.root(3), lambda x: _f("cbrt")(x) / (3 * x)
    ),
    "exp": function_of(methodcaller("exp"), _f("exp")),
    "exp2": lambda x: _exp(x * _f("log")(lifted(2))),
    "expm1": function_of(methodcaller("expm1"), _f("exp")),
    "log": _off(_positive, function_of(methodcaller("log"), _f("reciprocal"))),
    "log1p": _off(
        lambda x: x > -1, function_of(methodcaller("log1p"), lambda x: _f("reciprocal")(1 + x))
    ),
    "log2": lambda x: _f("log")(x) / _f("log")(2),
    "log10": lambda x: _f("log")(x) / _f("log")(10),
    "logaddexp": lambda x, y: _f("log")(_exp(x) + _exp(y)),
    "sin": function_of(methodcaller("sin"), _f("cos")),
    "cos": function_of(methodcaller("cos"), lambda x: -_f("sin")(x)),
    "tan": function_of(methodcaller("tan"), lambda x: 1 + _f("square")(_f("tan")(x))),
    "asin": _off(_inside, function_of(methodcaller("asin"), lambda x: _f("rsqrt")(1 - x * x))),
    "acos": _off(_inside, function_of(methodcaller("acos"), lambda x: -_f("rsqrt")(1 - x * x))),
    "atan": _off(
        _inside, function_of(methodcaller("atan"), lambda x: _f("reciprocal")(1 + x * x)), "real"
    ),
    "atan2": _cut(
        lambda y, x: y.contains(0) and not x > 0,
        function_of(
            lambda y, x: flint().arb.atan2(y, x),
            lambda y, x: x / (x * x + y * y),
            lambda y, x: -y / (x * x + y * y),
        ),
    ),
    "sinh": function_of(methodcaller("sinh"), _f("cosh")),
    "cosh": function_of(methodcaller("cosh"), _f("sinh")),
    "tanh": function_of(
        methodcaller("tanh"), lambda x: _f("square")(_f("reciprocal")(_f("cosh")(x)))
    ),
    "asinh": _off(
        _inside, function_of(methodcaller("asinh"), lambda x: _f("rsqrt")(1 + x * x)), "real"
    ),
    "acosh": _off(
        lambda x: x > 1,
        function_of(methodcaller("acosh"), lambda x: _f("rsqrt")(x - 1) * _f("rsqrt")(x + 1)),
    ),
    "atanh": _off(
        _inside, function_of(methodcaller("atanh"), lambda x: _f("reciprocal")(1 - x * x))
    ),
    "hypot": lambda x, y: _sqrt(lifted(x) * x + lifted(y) * y),
    "abs": modulus,
    "sign": sign,
    "copysign": lambda x, y: chosen(compared(y, 0, ge), modulus(x), -modulus(x)),
    "maximum": maximum,
    "minimum": minimum,
    "floor": floor,
    "ceil": ceil,
    "trunc": trunc,
    "round": round_,
    "remainder": remainder,
    "fmod": partial(remainder, whole=trunc),
    "astype": lifted,
    "real": real,
    "imag": imaginary,
    "conj": conjugate,
    "complex": lambda x, y: lifted(x) + lifted(1j) * y,
    "expit": function_of(
        lambda x: 1 / (1 + (-x).exp()), lambda x: _f("expit")(x) * _f("expit")(-x)
    ),
    "softplus": function_of(lambda x: x.exp().log1p(), _f("expit")),
    "xlogy": lambda x, y: _times_log(x, _f("log")(y)),
    "xlog1py": lambda x, y: _times_log(x, _f("log1p")(y)),
    "sinc": _sinc,
    "erf": function_of(methodcaller("erf"), _gauss),
    "erfc": function_of(methodcaller("erfc"), lambda x: -_gauss(x)),
    "erfcx": lambda x: _exp(lifted(x) * x) * _f("erfc")(x),
    "erfinv": function_of(
        methodcaller("erfinv"), lambda x: _f("reciprocal")(_gauss(_f("erfinv")(x)))
    ),
    "ndtr": lambda x: _f("erfc")(-lifted(x) / _sqrt(2)) / 2,
    "log_ndtr": lambda x: _f("log")(_f("ndtr")(x)),
    "ndtri": function_of(
        lambda x: -((2 * x).erfcinv() * flint().arb(2).sqrt()),
        lambda x: _sqrt(2 * _pi()) * _exp(_f("square")(_f("ndtri")(x)) / 2),
    ),
    "gammaln": function_of(_gammaln, _f("digamma")),
    "digamma": _polygamma(0),
    "polygamma": polygamma,
    "zeta": _zeta(0),
    "gammainc": function_of(
        lambda a, x: _within(x.gamma_lower(a, regularized=1), a, x),
        rate_by_series(_gammainc_series, 0),
        _gamma_density,
    ),
    "gammaincc": function_of(
        lambda a, x: _within(x.gamma_upper(a, regularized=1), a, x),
        rate_by_series(lambda a, x: -_gammainc_series(a, x), 0),
        lambda a, x: -_gamma_density(a, x),
    ),
    "betainc": function_of(
        lambda a, b, x: x.beta_lower(a, b, regularized=True),
        rate_by_series(_betainc_series, 0),
        rate_by_series(_betainc_series, 1),
        _beta_density,
    ),
    **{f"{kind}{n}": _bessel(kind, n) for kind in "ijyk" for n in (0, 1)},
    "i0e": lambda x: _exp(-modulus(x)) * _f("i0")(x),
    "i1e": lambda x: _exp(-modulus(x)) * _f("i1")(x),
    "k0e": lambda x: _exp(x) * _f("k0")(x),
    "k1e": lambda x: _exp(x) * _f("k1")(x),
    "airy_ai": function_of(
        methodcaller("airy_ai"),
        function_of(methodcaller("airy_ai", derivative=1), lambda x: x * _f("airy_ai")(x)),
    ),
}
"""The elementwise functions of numbers, by their names in the vocabulary."""


def isnan(x: Jets) -> Truth:
    """Returns whether the values are undefined; at an end of the domain it is not decided."""
    nan, *ends = (
        marks(lambda one: one.real.is_nan() or one.imag.is_nan(), part)
        for _, part in sorted(x.parts.items())
    )
    return Truth(reduce(or_, ends, nan), ~nan, max(x.parts))


# -------------------------------------------------------------------- arrays


def axes_of(axis: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Returns the axes of a reduction, ascending."""
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    return tuple(sorted({one % rank for one in axes}))


def along_last(x: Jets, axis: Sequence[int] | int | None, *, keepdims: bool) -> tuple[Jets, Any]:
    """Returns jets whose last axis runs over the axes of a reduction, and the shape of its
    result.
    """
    count = len(x.shape)
    over = axes_of(axis, count)
    kept = [one for one in range(count) if one not in over]
    rows = [x.shape[one] for one in kept]
    shape = tuple(1 if k in over else n for k, n in enumerate(x.shape)) if keepdims else tuple(rows)
    length = int(np.prod([x.shape[one] for one in over], dtype=int))
    return x.map(lambda part: part.transpose(*kept, *over).reshape(*rows, length)), shape


def reduced(
    x: Jets,
    fold: Callable[[Jets, Jets], Jets],
    empty: float,
    *,
    axis: Any,
    keepdims: bool,
) -> Jets:
    """Returns a fold along axes, in pairs; `empty` where there is nothing to fold."""
    rows, shape = along_last(x, axis, keepdims=keepdims)
    while (length := rows.shape[-1]) > 1:
        half = length // 2
        both = fold(_columns(rows, 0, half), _columns(rows, half, 2 * half))
        rows = joined([both, _columns(rows, 2 * half, length)], axis=-1)
    if not rows.shape[-1]:
        return lifted(np.full(shape, empty))
    return rows.map(lambda part: part.reshape(shape))


def _columns(x: Jets, start: int, stop: int) -> Jets:
    return x.map(lambda part: part[..., start:stop])


def joined(parts: Sequence[Jets], axis: int) -> Jets:
    """Returns arrays one after the other along an axis."""
    keys = {key for one in parts for key in one.parts}
    return Jets({
        key: np.concatenate([one.parts.get(key, zeros(one.shape)) for one in parts], axis)
        for key in keys
    })  # fmt: skip


def total(x: Jets, *, axis: Any, keepdims: bool) -> Jets:
    """Returns the sum along axes."""
    rows, shape = along_last(x, axis, keepdims=keepdims)
    if not rows.shape[-1]:
        return lifted(np.zeros(shape))
    added = rows.map(lambda part: np.asarray(np.add.reduce(part, axis=-1), object))
    return added.moving(np.asarray(rows.moves.any(axis=-1))).map(lambda part: part.reshape(shape))


def cumulative(x: Jets, fold: Callable[[Jets, Jets], Jets], *, axis: int) -> Jets:
    """Returns the folds of the first entries along an axis."""
    moved = x.map(lambda part: np.moveaxis(part, axis, -1))
    folds = [_columns(moved, 0, 1)]
    for k in range(1, moved.shape[-1]):
        folds.append(fold(folds[-1], _columns(moved, k, k + 1)))
    return joined(folds, -1).map(lambda part: np.moveaxis(part, -1, axis))


def entries(xs: Sequence[Operand]) -> Jets:
    """Returns all entries of the operands, one after the other."""
    return joined([lifted(x).map(np.ravel) for x in xs], 0)


def take(*xs: Operand, indices: NDArray[np.int64], fill: complex) -> Jets:
    """Returns entries of the operands by their indices; see the vocabulary."""
    flat = joined([entries(xs), lifted(np.asarray(fill).reshape(1))], 0)
    return flat.map(lambda part: part[indices])


def segment_sum(*xs: Operand, segments: NDArray[np.int64], shape: tuple[int, ...]) -> Jets:
    """Returns the sums of segments of the operands' entries; see the vocabulary."""
    inside = np.ravel(segments) >= 0

    def added(part: Balls) -> Balls:
        sums = zeros((int(np.prod(shape, dtype=int)),))
        np.add.at(sums, np.ravel(segments)[inside], part[inside])
        return sums.reshape(shape)

    flat = entries(xs)
    counts = np.zeros(int(np.prod(shape, dtype=int)), int)
    np.add.at(counts, np.ravel(segments)[inside], flat.moves[inside])
    return flat.map(added).moving(counts.reshape(shape) > 0)


def sort(x_: Operand, *, axis: int, indices: NDArray[np.int64]) -> Jets:
    """Returns the entries in the order that was recorded, where that is ascending beyond doubt.

    Raises `UndecidedError` where it is not.
    """
    x = lifted(x_)
    moved = x.map(lambda part: np.moveaxis(part, axis, -1))
    order = np.moveaxis(indices, axis, -1)
    out = moved.map(lambda part: np.take_along_axis(part, order, -1))
    left, right = out.map(lambda part: part[..., :-1]), out.map(lambda part: part[..., 1:])
    last = out.map(lambda part: part[..., -1:])
    left_out = np.ones(moved.shape, bool)
    np.put_along_axis(left_out, order, False, -1)
    if compared(left, right, le).may_not.any() or (
        order.shape[-1] and (compared(last, moved, le).may_not & left_out).any()
    ):
        raise UndecidedError("a tie in a sort")
    return out.map(lambda part: np.moveaxis(part, -1, axis))


def extreme_index(
    x_: Operand, index: NDArray[Any], better: Any, *, axis: int, keepdims: bool
) -> Any:
    """Returns the recorded index of the largest or smallest entry, where it is that beyond doubt.

    Raises `UndecidedError` where it is not.
    """
    x = lifted(x_)
    where = index if keepdims else np.expand_dims(index, axis)
    best = x.map(lambda part: np.take_along_axis(part, where, axis))
    rivals = np.ones(x.shape, bool)
    np.put_along_axis(rivals, where, False, axis)
    if (compared(best, x, better).may_not & rivals).any():
        raise UndecidedError("a tie between the largest or smallest entries")
    return index


def matmul(x: Operand, y: Operand) -> Jets:
    """Returns the product of matrices, as NumPy's."""
    a, b = lifted(x), lifted(y)
    found = bilinear(lambda a, b: np.asarray(np.matmul(a, b), object), a, b)
    if not max(found.parts):
        return found
    one, two = ((jets.moves, jets.moves | ~is_zero(jets.value)) for jets in (a, b))
    return found.moving(np.asarray((one[0] @ two[1]) | (one[1] @ two[0])))


def fft(x_: Operand, *, axis: int, inverse: bool) -> Jets:
    """Returns the discrete Fourier transform along an axis."""
    x, module = lifted(x_), flint()
    n = x.shape[axis]

    def transformed(part: Balls) -> Balls:
        rows = np.moveaxis(part, axis, -1)
        out = np.empty(rows.shape, object)
        for k in np.ndindex(rows.shape[:-1]):
            row = module.acb.dft([module.acb(one) for one in rows[k]], inverse)
            out[k] = [n * one for one in row] if inverse else row  # the inverse has the factor 1/n
        return np.moveaxis(out, -1, axis)

    return x.map(transformed).moving(np.asarray(x.moves.any(axis=axis, keepdims=True)))

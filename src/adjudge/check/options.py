"""The options of the verbs: names, types, defaults and meaning, what a check makes of them, and
what is told of a call before any work.

Each option is defined here and nowhere else. They stand in groups, since not every verb takes every
option; a group is a `TypedDict`, so that a type checker knows the keywords of a call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial, wraps
from itertools import product
from operator import itemgetter
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from adjudge.engine import AutodiffBackend, ByHand, functional_of, require_no_class
from adjudge.errors import FlagError, InputError, described, did_you_mean
from adjudge.estimate import Exact, Reference, bind, require_flint
from adjudge.findings import InSequence
from adjudge.problem import (
    Bounds,
    Counts,
    Directions,
    Domains,
    Holder,
    Path,
    Problem,
    first_order,
    fresh_seed,
    read_arguments,
    through,
)
from adjudge.reference import require_reference
from adjudge.report import place

Mode = Literal["auto", "full", "projected"]
Points = Literal["special"] | Sequence[Any] | Mapping[str, Any]
P = ParamSpec("P")
R = TypeVar("R")


class TorchOptions(TypedDict, total=False):
    """The options that `torch.autograd.gradcheck` has as well, under the same names.

    Attributes:
        eps: The absolute step of the first differences. What they leave in doubt is judged by steps
            that are chosen, so that no right derivative fails for a step that is too long or too
            short. By default (`None`) the step follows the scale and the dtype of each input.
        atol: The absolute part of the tolerance: allowed is
            `|automatic - reference| <= atol + rtol |reference|`. By default (`None`) there is no
            absolute part.
        rtol: The relative part of the tolerance. By default (`None`) it follows from the dtype,
            and the error bar of the differences is allowed beside it.
        nondet_tol: The largest absolute difference that is allowed between two evaluations, or two
            vjps, at one point. Default: 0.
        check_undefined_grad: Whether undefined (`None`) cotangents and tangents have to act as
            zeros. Default: `True`.
        check_grad_dtypes: Whether tangents have to be complex exactly where their outputs are. The
            dtype of a gradient is compared with that of its input in any case. Default: `True`.
        check_batched_grad: Whether the vjp under `vmap` has to equal the loop. Default: `False`.
        check_batched_forward_grad: Whether the jvp under `vmap` has to equal the loop. Default:
            `False`.
        check_forward_ad: Whether forward mode is checked; the `jvp` of a `ByHand` is checked in any
            case. Default: `False`.
        check_backward_ad: Whether reverse mode is checked; one of the two modes has to be.
            Default: `True`.
        fast_mode: `True` stands for `mode="projected"`, `False` for `mode="full"`. By default
            (`None`) `mode` decides.
        masked: Of sparse inputs, whether the stored values alone are checked. By default (`None`)
            all entries are.
    """

    eps: float | None
    atol: float | None
    rtol: float | None
    nondet_tol: float
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_batched_forward_grad: bool
    check_forward_ad: bool
    check_backward_ad: bool
    fast_mode: bool | None
    masked: bool | None


class SharedOptions(TypedDict, total=False):
    """The options that every verb takes, `crosscheck` among them.

    Attributes:
        wrt: Which inputs are checked: the index of a positional argument, an accessor path like
            `"inputs[0]['w']"` or `"kwargs['b']"`, or several of them. By default (`None`) all
            floating and complex arrays are; or, where the engine marks arrays (`requires_grad`)
            and any of them is marked, the marked ones.
        bounds: A pair `(low, high)` of numbers or arrays that no evaluation leaves in any checked
            input, with `None` for no bound; or as SciPy has them, a list with a pair for each entry
            of a vector or `scipy.optimize.Bounds`; or a mapping from paths as for `wrt` to these.
            Where x is too close to a bound, or on it, differences are one-sided. By default
            (`None`) there are no bounds.
        directions: A set that inputs live on, along which they are checked: no evaluation leaves
            it, and gradients are compared along its tangents. `"symmetric"` (Hermitian where
            complex), `"positive definite"`, `"simplex"`, `"sphere"`, `"orthogonal"`, `"sorted"`,
            `"positive"`, or a callable `chart(z) -> x` with `chart(x) = x`, for all checked
            inputs; or a mapping from paths as for `wrt` to these. By default (`None`) inputs move
            in all directions.
        device: The name of the device to check on, as `adjudge backends` lists it: the function
            sees copies of all arrays there. By default (`None`) every array stays where it is.
        mode: `"full"` compares every entry of the Jacobian. `"projected"` compares one random
            signed projection for each pair of an input and an output and, where that fails or is
            suspicious, the entries that it is traced to. The default, `"auto"`, is full for
            problems of a few numbers and projected for all others.
        seed: The seed of the random tangents and cotangents. By default (`None`) it is a fresh
            one, which the report states.
        equal_nan: Whether NaNs and infinities pass where they agree. Default: `False`.
        max_evaluations: A budget of work, of which an evaluation, a vjp and a jvp are one unit
            each (a jvp evaluates `f` as well). When it is spent nothing more is begun, and what
            was left open is a finding, `UNFINISHED`: INCONCLUSIVE, if nothing failed before. A
            ladder of steps that has begun is climbed to its end. By default (`None`) there is no
            limit.
        in_double: Whether the formula is judged in float64 where an input is narrower, and the
            narrow derivative against that one. By default (`None`) this is done where the function
            runs in float64, none of `eps`, `atol`, `rtol` and `max_evaluations` is given, and
            there is no difference of two calls that only `nondet_tol` allows. With `True` the
            verdict is INCONCLUSIVE at best where it cannot be done; `False` leaves it out.
        highest_precision: Whether everything is evaluated without TF32, autocast and other
            arithmetic that is narrower than the dtype, instead of allowing for it. Default:
            `False`.
        thorough: Whether more is looked at than what was asked for, at some cost: functions that
            are found affine are compared to rounding, derivatives in forward mode have to be
            additive and zero at zero, `vmap` of a derivative has to equal the loop, second
            derivatives have to be symmetric along further tangents, and gradients must not reach
            entries that the function never reads. `Report.beyond` says what was looked at. By
            default (`None`) this is done where `order` or `modes` is given.
        executor: Any `concurrent.futures.Executor`, for an expensive function: its evaluations at
            points that do not depend on each other are made at once, by threads or, where it can be
            pickled, by processes, with the same numbers and verdict, and one evaluation more to see
            that it gives the same value there. A function that draws random numbers, or writes into
            arrays that it closes over, is evaluated here, one point after another, and so are
            derivatives; a note says so. By default (`None`) all evaluations are made here.
    """

    wrt: Path | Sequence[Path] | None
    bounds: Bounds
    directions: Directions
    device: str | None
    mode: Mode
    seed: int | None
    equal_nan: bool
    max_evaluations: int | None
    in_double: bool | None
    highest_precision: bool
    thorough: bool | None
    executor: Executor | None


class EngineOptions(SharedOptions, total=False):
    """The options of the verbs that check on one engine.

    Attributes:
        kwargs: Keyword arguments of `f`, which are checked like the positional ones. By default
            (`None`) there are none.
        outputs: Which outputs are checked, where some are not meant to have a derivative (metrics,
            saved statistics): the index of an output, an accessor path like `"out['loss']"`, or
            several of them. By default (`None`) all floating and complex arrays are.
        captured: Whether arrays that `f` closes over, and that are marked for differentiation, are
            checked like inputs; there need be no other input then. They hold other values while it
            runs, and are as before afterwards. By default (`None`) those are that are inputs as
            well, and the report names the others; with `False` it does not. An engine that does not
            know what `f` closes over refuses `True`.
        reference: What automatic derivatives are compared with in place of differences of `f`,
            where `f` cannot show its derivative: `adjudge.reference.mpmath(g)`, `.twin(g)` or
            `.derivative(jvp=...)`. `"exact"` replays `f` itself in ball arithmetic, which needs an
            engine that translates its operations, and python-flint. By default (`None`) differences
            are taken.
        backend: The name or an instance of the engine. Where no input is an array of it, arrays of
            NumPy and numbers are placed on it. By default (`None`) the arrays decide.
    """

    kwargs: Mapping[str, Any] | None
    outputs: Path | Sequence[Path] | None
    captured: bool | None
    reference: Reference | Literal["exact"] | None
    backend: str | AutodiffBackend | None


class SecondOrderOptions(EngineOptions, total=False):
    """What `gradgradcheck` takes beside the parameters that PyTorch's has, too.

    Attributes:
        blame: Whether a check that fails also looks for the rule at fault, as `adjudge.blame` does,
            where `f` has more than one step and its engine can record them: `Report.faults`.
            Nothing more is begun for that once it has taken as much work as the check, or all that
            `max_evaluations` leaves. Default: `True`.
    """

    blame: bool


class ScopeOptions(TypedDict, total=False):
    """Which derivatives are checked, and at which points, beside the first one at x.

    Attributes:
        order: 1, 2 or 3: all compositions of reverse (`R`) and forward mode (`F`) up to this
            order, in every way in which the engine takes derivatives (of PyTorch, eager and
            `torch.func`; of JAX, eager and `jit`): `Report.modes` and `Report.ways`. What a
            derivative raises is RAISED, what the engine lacks UNSUPPORTED; neither is a PASS. By
            default (`None`) the first derivative is checked in the engine's usual way.
        modes: The compositions to check, outermost first, such as `["R", "F", "RR", "FR"]`; what
            they raise and lack is told as for `order`. By default (`None`) all up to `order`;
            without an order `R` and `F`, as `check_backward_ad` and `check_forward_ad` say.
        compile: Whether the compiled function is checked as well. By default (`None`) it is where
            `order` is given and the engine is mostly used like that (JAX).
        points: Further points at which the same check is made, each with the same options and
            budget: `"special"` for `special_points`, a list of inputs, or a mapping from names to
            inputs. The report has one report for each point in `.points`. A point at which `f`
            raises, is not finite or not smooth is listed as such and decides nothing. By default
            (`None`) there are none.
        domain: Where `f` is defined, for the special points: see `special_points`. Steps keep
            within its intervals where there are no `bounds`. By default (`None`) `f` is defined
            everywhere.
    """

    order: int | None
    modes: Sequence[str] | None
    compile: bool | None
    points: Points | None
    domain: Domains


class MoreOptions(SecondOrderOptions, ScopeOptions, total=False):
    """What `gradcheck` takes beside the parameters that PyTorch's has, too."""


class Options(TorchOptions, MoreOptions, total=False):
    """All options of a check on one engine, as `examine` takes them.

    They are explained in the groups `adjudge.check.TorchOptions`, `SharedOptions`, `EngineOptions`,
    `SecondOrderOptions` and `ScopeOptions`. It is a `TypedDict`, so that a wrapper can pass options
    on with their types:
    `def check(f, x, **options: Unpack[adjudge.Options])`.
    """


class CrossOptions(TorchOptions, SharedOptions, total=False):
    """The options of `crosscheck`, which passes them to the check on each engine."""


DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(Options.__annotations__),
    "nondet_tol": 0.0,
    "check_undefined_grad": True,
    "check_grad_dtypes": True,
    "check_batched_grad": False,
    "check_batched_forward_grad": False,
    "check_forward_ad": False,
    "check_backward_ad": True,
    "mode": "auto",
    "equal_nan": False,
    "highest_precision": False,
    "blame": True,
}
"""The value of every option that is not given."""
FLAGS = tuple(name for name, kind in Options.__annotations__.items() if "bool" in str(kind))
"""The options that are `True` or `False`, and some of them `None`."""
MODES_OF_SECOND_ORDER = {
    "check_backward_ad": "check_rev_over_rev",
    "check_forward_ad": "check_fwd_over_rev",
}
"""The names that `gradgradcheck` has for two options."""


TOLD_WHERE_READ = frozenset(
    {"backend", "bounds", "directions", "domain", "executor", "kwargs", "points", "reference"}
)
"""The options of which what reads them says more than their annotation does."""


# -- what is told of a call before any work


def known_options(
    verb: Callable[..., Any],
    given: Mapping[str, Any],
    group: type,
    more: Sequence[object] = (),
) -> Options:
    """The keywords of a call. Raises `TypeError` where one is no option of the group, and where
    there are `more` positional arguments than the verb has.
    """
    name = verb.__name__
    if more:
        raise inputs_apart(name)
    for option in given:
        if option not in group.__annotations__:
            raise unexpected(name, option, {*group.__annotations__, *(verb.__kwdefaults__ or ())})
    known: Any = dict(given)  # every group is a part of `Options`
    return known  # type: ignore[no-any-return]


def inputs_apart(function: str, *further: str) -> TypeError:
    """Returns the error to raise where several inputs are passed one after another; `further`
    arguments follow them.
    """
    call = f"{function}({', '.join(['f', '(x, y)', *further])})"
    return TypeError(f"{function}() takes the inputs as one argument: several are a tuple, {call}")


def unexpected(
    function: str, option: str, takes: Iterable[str], *, door: bool = False
) -> TypeError:
    """Returns the error to raise for a keyword that is none of those that a function takes.

    A verb leaves an option out for a reason, and a `door` has another library's name for it.
    """
    known, raises = set(takes), "raise_exception"
    hint = did_you_mean(option, known, before=". ")
    if option in Options.__annotations__ and not (door and hint):
        hint = "; adjudge.examine() and adjudge.gradcheck() take it"
    elif raises not in known and repr(raises) in did_you_mean(option, {*known, raises}):
        hint = ": gradcheck() raises for a wrong derivative, and examine() returns a report"
    return TypeError(f"{function}() got an unexpected keyword argument {option!r}{hint}")


KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    bool: ((int, np.bool_), "True or False"),
    int: ((int, np.integer), "an integer"),
    float: ((int, float, np.number), "a number"),
    str: ((str,), "a string"),
    Callable: ((Callable,), "a function"),  # type: ignore[dict-item]  # isinstance takes it
    Iterable: ((Iterable,), "a tuple"),
    Sequence: ((Iterable,), "a list"),
    Mapping: ((Mapping,), "a dict"),
    Executor: ((Executor,), "a concurrent.futures.Executor"),
    NoneType: ((NoneType,), "None"),
}
"""For each annotation: what fits it, and in words. All others, such as `Any`, are fitted by all."""
NUMBERS = (int, float)
"""The annotations that True and False do not fit, which are integers in Python."""


def require_kind(name: str, value: object, hint: Any) -> None:
    """Raises `InputError` where the argument `name` is of none of the kinds of its annotation."""
    hints = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    kinds = [get_origin(one) or one for one in hints]
    if not any(map(_fits, [value] * len(kinds), kinds)):
        words = dict.fromkeys(KINDS[kind][1] for kind in kinds)
        raise InputError(f"{name}= is {described(value)}", f"give {' or '.join(words)}")


def _fits(value: object, kind: Any) -> bool:
    fitting = KINDS.get(kind, ((object,), ""))[0]
    truth = isinstance(value, bool | np.bool_) and kind in NUMBERS
    return isinstance(value, fitting) and not truth


def one_by_one(door: Callable[..., Any], hints: Mapping[str, Any], args: Sequence[object]) -> str:
    """Returns how several inputs are passed to `door`, where `args` has some one after another and
    not as one tuple; the empty text where it has not.

    The inputs are the first parameter that is no function, and no array stands after them.
    """
    required = [
        name
        for name, one in inspect.signature(door).parameters.items()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    functions = [name for name in required if get_origin(hints[name]) is Callable]
    k = len(functions)
    if not any(hasattr(one, "shape") for one in args[k + 1 :]):
        return ""
    names = ", ".join([*functions, "(x, y)", *required[k + 1 :]])
    return f"several inputs are one tuple: {door.__name__}({names})"


def checked_signature(door: Callable[P, R]) -> Callable[P, R]:
    """Returns `door`, a function with the signature of another library's check, which says before
    any work which option it does not have, and which argument is of another kind than annotated.
    """
    signature = inspect.signature(door)
    # Looked up once, at the first call: to read them takes as long as a part of a small check.
    hints = cache(partial(get_type_hints, door))

    @wraps(door)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        for option in kwargs:
            if option not in signature.parameters:
                raise unexpected(door.__name__, option, signature.parameters, door=True)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            if hint := one_by_one(door, hints(), args):
                raise TypeError(f"{door.__name__}() has too many arguments; {hint}") from None
            return door(*args, **kwargs)  # Python says which argument is missing, or too many
        for name, value in given.items():
            try:
                require_kind(name, value, hints()[name])
            except InputError as error:
                hint = one_by_one(door, hints(), args) if hasattr(value, "shape") else ""
                raise InputError(error.found, hint or error.remedy) from None
        return door(*args, **kwargs)

    return checked


# -- what a check makes of its options


def problem_of(
    f: Callable[..., Any], inputs: Any, options: Options, counts: Counts | None = None
) -> Problem:
    """The problem of `f` at `inputs`, with the inputs, the engine and the sets that `options` name.

    Raises the errors of bad input. What it costs is added to `counts`.
    """
    if not callable(f):
        raise InputError(
            f"the function to check is of type {type(f).__name__}, which cannot be called",
            "pass the function first, then its inputs",
        )
    require_no_class(f)
    reference = reference_of(options)
    # A function that the caller gave knows nothing of the parameters that f holds.
    held = functional_of(f) if reference is None or isinstance(reference, Exact) else None
    holder = None if held is None else Holder(held)
    arguments = read_arguments(
        inputs,
        options.get("kwargs"),
        wrt=options.get("wrt"),
        backend=options.get("backend"),
        masked=options.get("masked"),
        device=options.get("device"),
        holder=holder,
        captured=bool(options.get("captured")),
        rule=f if isinstance(f, ByHand) else None,
    )
    executor = options.get("executor")
    if executor is not None and counts is None:
        counts = Counts(ahead=through(executor, f))
        if holder is not None:  # its parameters are exchanged for each evaluation
            counts.in_sequence(InSequence.HELD)
    highest, outputs = options.get("highest_precision", False), options.get("outputs")
    with arguments.backend.environment.highest_precision() if highest else nullcontext():
        problem = first_order(
            f if holder is None else holder,
            arguments,
            bounds=options.get("bounds"),
            directions=options.get("directions"),
            outputs=None if outputs is None else _paths(outputs),
            counts=counts,
        )
    if reference is not None:
        bind(reference, problem)  # what it cannot take is told before any work
    return problem


def reference_of(options: Options) -> Reference | None:
    """Returns the reference that the options name. Raises `InputError` where it is none."""
    given = options.get("reference")
    if given is None:
        return None
    if isinstance(given, str) and given == "exact":
        require_flint()
        return Exact()
    require_reference(given)
    return given


def _paths(outputs: Path | Sequence[Path]) -> Sequence[Path]:
    """Returns the paths of the outputs to check. Raises `InputError` where there are none."""
    paths = [outputs] if isinstance(outputs, int | str) else list(outputs)
    if not paths:
        raise InputError(
            "outputs= selects nothing", "name at least one output, or leave outputs= out"
        )
    return paths


@dataclass(frozen=True)
class Settings:
    """The options that say what a judgement looks at and how closely, validated.

    The names are those of the options, which say what each means; `None` means automatic.
    """

    letters: str
    """The outermost modes that are judged: R, F or both."""
    full: bool | None
    """Whether every entry is compared; from `mode` and `fast_mode`."""
    seed: int
    eps: float | None
    atol: float | None
    rtol: float | None
    nondet_tol: float
    equal_nan: bool
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_batched_forward_grad: bool
    max_evaluations: int | None
    in_double: bool | None
    highest_precision: bool
    thorough: bool
    reference: Reference | None
    modes: Sequence[str] | None
    """The compositions that the caller asked for by `modes` or `order`; `None` without these."""
    rounded: float = 0.0
    """The spacing at 1 to which the engine was seen to round derivatives; 0 where it is no coarser
    than that of their dtype."""
    constants: float = 0.0
    """See `Tolerance.constants`."""
    of_x: float = 0.0
    """See `Tolerance.of_x`."""
    by_blocks: bool = False
    """Whether blocks of entries are compared by themselves, too; see `NARROW_BLOCK`."""
    of_wrong: bool = False
    """Whether the derivative that is differentiated has failed, so that no entry is searched for
    behind what fails: that search took thirty times a right check, and the first order is told."""

    @property
    def fixed(self) -> bool:
        """Whether the caller chose a number that belongs to the dtype at hand, or a budget."""
        return (self.eps, self.atol, self.rtol, self.max_evaluations) != (None,) * 4


_AS_GIVEN = tuple(
    name
    for name in Settings.__annotations__
    if name in DEFAULTS and name not in ("seed", "thorough", "modes", "reference")
)
"""The settings that are options as they were given."""
_given = itemgetter(*_AS_GIVEN)


def settings_of(options: Options, *, second: bool = False) -> Settings:
    """The settings that `options` ask for.

    Raises `InputError` for values without meaning, `FlagError` for contradictions. `second`: the
    modes are those of `gradgradcheck`, for the names in messages.
    """
    chosen: Any = {**DEFAULTS, **options}
    for name in FLAGS:
        flag = chosen[name]
        optional = DEFAULTS[name] is None
        one_of_two = isinstance(flag, int | np.bool_) and flag in (0, 1)
        if one_of_two or (flag is None and optional):
            continue
        told = MODES_OF_SECOND_ORDER.get(name, name) if second else name
        raise InputError(f"{told}={flag!r}", f"give True or False{', or None' * optional}")
    modes = requested_modes(chosen["order"], chosen["modes"])
    settings = Settings(
        letters="R" * bool(chosen["check_backward_ad"]) + "F" * bool(chosen["check_forward_ad"]),
        full=_full(chosen["mode"], chosen["fast_mode"]),
        seed=fresh_seed() if chosen["seed"] is None else chosen["seed"],
        thorough=modes is not None if chosen["thorough"] is None else chosen["thorough"],
        modes=modes,
        reference=reference_of(options),
        **dict(zip(_AS_GIVEN, _given(chosen), strict=True)),
    )
    _validate(settings, second=second)
    hints = _hints()
    for name, value in options.items():
        if name in hints and name not in TOLD_WHERE_READ:
            require_kind(name, value, hints[name])
    if settings.reference is not None:
        _validate_reference(options)
    return settings


@cache
def _hints() -> Mapping[str, Any]:
    """Returns the annotations of all options."""
    return get_type_hints(Options)


def _full(mode: str, fast_mode: bool | None) -> bool | None:
    if mode not in ("auto", "full", "projected"):
        raise InputError(f"mode={mode!r}", 'give mode="auto", "full" or "projected"')
    if fast_mode is None:
        return None if mode == "auto" else mode == "full"
    if mode != "auto" and (mode == "projected") != fast_mode:
        raise FlagError(f"fast_mode={fast_mode} contradicts mode={mode!r}", "give one of them")
    return not fast_mode


def _is_count(value: object) -> bool:
    """Returns whether this is an integer from 0 on; `True` is none, which is one in Python."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        return False
    return int(value) >= 0


def _validate(settings: Settings, *, second: bool) -> None:
    for name in ("eps", "atol", "rtol", "nondet_tol"):
        value = getattr(settings, name)
        if value is None and name != "nondet_tol":
            continue
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        step = name == "eps"
        if not number or not 0 <= value < np.inf or (step and not value > 0):
            raise InputError(
                f"{name}={value!r}",
                f"give a finite {'positive' if step else 'non-negative'} number"
                + ("" if name == "nondet_tol" else ", or None for automatic"),
            )
    budget: Any = settings.max_evaluations
    if budget is not None and not _is_count(budget):
        raise InputError(
            f"max_evaluations={budget!r}", "give a non-negative integer, or None for no limit"
        )
    seed: Any = settings.seed
    if not _is_count(seed):
        raise InputError(f"seed={seed!r}", "give a non-negative integer, or None")
    names = MODES_OF_SECOND_ORDER
    backward, forward = names.values() if second else names
    if not settings.letters:
        raise FlagError(
            f"{backward}=False and {forward}=False leave nothing to check",
            "switch at least one of them on",
        )
    if settings.in_double and settings.fixed:
        raise FlagError(
            "in_double=True needs automatic tolerances and no budget",
            "leave out eps=, atol=, rtol= and max_evaluations=, or in_double=",
        )
    for batched, wanted, mode, letter in (
        ("check_batched_grad", settings.check_batched_grad, backward, "R"),
        ("check_batched_forward_grad", settings.check_batched_forward_grad, forward, "F"),
    ):
        if wanted and letter not in settings.letters:
            raise FlagError(
                f"{batched}=True needs {mode}=True", "switch the one off or the other on"
            )


def _validate_reference(options: Options) -> None:
    for name in ("eps", "in_double"):
        if options.get(name):
            raise FlagError(
                f"{name}= is about differences of f, which reference= replaces", "give one of them"
            )
    if options.get("directions") is not None:
        raise FlagError(
            "directions= and reference=: a reference does not know the coordinates of a set",
            "give one of them",
        )


HIGHEST_ORDER = 3
"""The highest order of derivatives that is checked. The value is ours."""


def requested_modes(order: int | None, modes: Sequence[str] | None) -> list[str] | None:
    """Returns the compositions that `order` and `modes` name; `None` where neither is given.

    Raises `InputError` for what is no order or no word, `FlagError` for words above the order.
    """
    if order is not None and not (_is_count(order) and 1 <= order <= HIGHEST_ORDER):
        raise InputError(f"order={order!r}", f"give an order from 1 to {HIGHEST_ORDER}, or None")
    if modes is None:
        if order is None:
            return None
        lengths = range(1, order + 1)
        return sorted(("".join(w) for k in lengths for w in product("RF", repeat=k)), key=place)
    given: Any = modes
    words = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else []
    known = [word for word in words if isinstance(word, str) and word and not set(word) - {*"RF"}]
    if not words or len(known) < len(words):
        raise InputError(
            f"modes={modes!r}",
            'give words of "R" and "F", such as ["R", "F", "RR"]',
        )
    above = [word for word in words if order is not None and len(word) > order]
    if above:
        raise FlagError(f"modes={words!r} go beyond order={order}", f"leave out {above}")
    return sorted(dict.fromkeys(words), key=place)

"""The verbs: `gradcheck` and `gradgradcheck` raise, `examine` returns; and a check as data."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Never, Unpack

from adjudge.check import (
    MoreOptions,
    Options,
    SecondOrderOptions,
    at_one_point,
    at_points,
    function_name,
    inputs_apart,
    known_options,
    of_second_order,
    require_kind,
    unexpected,
    with_slip,
)
from adjudge.errors import InputError
from adjudge.report import GradcheckError, Report, tell
from adjudge.trace import with_faults

Function = Callable[..., Any]


def gradcheck(
    f: Function,
    inputs: Any,
    *more: Never,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = True,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool | None = None,
    masked: bool | None = None,
    **options: Unpack[MoreOptions],
) -> Report:
    """Whether the engine's first derivatives of `f` at `inputs` are the derivatives of `f`.

    The keywords that are named here are those of `torch.autograd.gradcheck`. What each of them
    means, and all further ones, stand in `adjudge.Options`.

    Args:
        f: The function, called as `f(*inputs, **kwargs)`, which returns a pytree with floating or
            complex arrays. Or a `ByHand`.
        inputs: A tuple or list of positional arguments (pytrees), or one argument. The arrays
            decide the engine. They are never written to or passed on: `f` sees copies. Of a
            `ByHand` they may be numbers, or lists of numbers, which become arrays of NumPy.
        raise_exception: `False` returns a falsy report instead of raising `GradcheckError`.
            Every other exception comes through.
        options: See `adjudge.Options`: `mode`, `seed`, `wrt`, `order`, `points` and others.

    Returns:
        The `Report`, truthy only if everything asked for was compared and agreed.

    Raises:
        GradcheckError: The verdict is FAIL or INCONCLUSIVE; carries the report.
        InputError: Nothing to check, or arguments that make no sense.
        BackendError: Arrays of no, or of several, frameworks.
        UnstableOutputError: Outputs change shape or dtype near x.
    """
    __tracebackhide__ = True  # a test's traceback ends at the test's own line
    require_kind("raise_exception", raise_exception, bool)
    known_options(gradcheck, options, Options, more)
    report = examine(
        f, inputs, eps=eps, atol=atol, rtol=rtol, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_batched_forward_grad=check_batched_forward_grad, check_forward_ad=check_forward_ad,
        check_backward_ad=check_backward_ad, fast_mode=fast_mode, masked=masked, **options,
    )  # fmt: skip
    return _raised(report, raise_exception)


def examine(f: Function, inputs: Any, *more: Never, **options: Unpack[Options]) -> Report:
    """`gradcheck` that raises nothing for wrong numbers: the report says it.

    Args:
        f, inputs: As for `gradcheck`.
        options: See `adjudge.Options`. With `order=2`, for example, all compositions of reverse
            and forward mode are checked up to the second order.

    Raises:
        InputError: For inputs and options that make no sense, and for a derivative by hand that
            returns the wrong number of arrays, or arrays of another shape.
        UnstableOutputError: Where outputs change their shape or dtype near x.
        BackendError: Where no adapter knows the arrays, or a device or engine is not there.

        What `f` or its rules raise comes through, with a note that says in which evaluation; with
        `order` or `modes` what a derivative raises is a finding, RAISED.
    """
    chosen = known_options(examine, options, Options, more)
    several = chosen.get("points") is not None or chosen.get("domain") is not None

    def check(function: Function, options: Options) -> Report:
        return (at_points if several else at_one_point)(function, inputs, options)

    report = with_slip(check(f, chosen), f, inputs, check, chosen)
    return tell(with_faults(report, f, inputs, chosen))


def gradgradcheck(
    f: Function,
    inputs: Any,
    grad_outputs: Any = None,
    *more: Never,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = True,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool | None = None,
    masked: bool | None = None,
    **options: Unpack[SecondOrderOptions],
) -> Report:
    """`gradcheck` of `(x, w) -> J*(x) w`, and of `J*` itself by the same evaluations.

    The keywords that are named here are those of `torch.autograd.gradgradcheck`. What those mean
    that `gradcheck` has too, and all further ones, stand in `adjudge.Options`.

    Args:
        f, inputs: As for `gradcheck`.
        grad_outputs: The cotangents `w`, one array per differentiable output. `None`: random
            signed ones, drawn independently of all tangents.
        gen_non_contig_grad_outputs: Random cotangents are not contiguous, where the engine has
            strides.
        raise_exception: As for `gradcheck`.
        check_fwd_over_rev, check_rev_over_rev: Modes `FR` and `RR`; at least one.
        options: See `adjudge.Options`; all but `order`, `modes`, `compile`, `points`, `domain`,
            `check_forward_ad`, `check_backward_ad` and `check_batched_forward_grad`.

    In the report, `R` is the first derivative, `RR` and `FR` the second; entries
    `d grad(inputs[0]) / d inputs[0]` belong to the term in x, `d grad(inputs[0]) /
    d grad_outputs[0]` to the term in w.

    Raises: As `gradcheck`.
    """
    __tracebackhide__ = True  # a test's traceback ends at the test's own line
    require_kind("raise_exception", raise_exception, bool)
    chosen: Options = {
        **known_options(gradgradcheck, options, SecondOrderOptions, more),
        "eps": eps, "atol": atol, "rtol": rtol, "nondet_tol": nondet_tol,
        "check_undefined_grad": check_undefined_grad, "check_grad_dtypes": check_grad_dtypes,
        "check_batched_grad": check_batched_grad, "check_forward_ad": check_fwd_over_rev,
        "check_backward_ad": check_rev_over_rev, "fast_mode": fast_mode, "masked": masked,
    }  # fmt: skip

    def check(function: Function, options: Options) -> Report:
        return of_second_order(
            function, inputs, options, grad_outputs, strided=gen_non_contig_grad_outputs
        )

    report = with_slip(check(f, chosen), f, inputs, check, chosen)
    return _raised(tell(with_faults(report, f, inputs, chosen)), raise_exception)


def _raised(report: Report, raise_exception: bool) -> Report:
    __tracebackhide__ = True
    if not report and raise_exception:
        raise GradcheckError(report)
    return report


class Case:
    """`Case(f, inputs, ...)`: further keywords are those of `gradcheck`.

    With `order=2` they are those of `gradgradcheck`. Nothing is computed before `run`.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        inputs: Any,
        *more: Never,
        name: str | None = None,
        order: int = 1,
        **options: Any,
    ) -> None:
        """Raises `InputError` for another order than 1 and 2, `TypeError` for what is no option."""
        if more:
            raise inputs_apart("Case")
        if order not in (1, 2):
            raise InputError(f"order={order!r} of a Case", "give 1 or 2")
        verb: Any = examine if order == 1 else gradgradcheck
        takes = {*(Options if order == 1 else SecondOrderOptions).__annotations__}
        takes |= {"name", "order", *(verb.__kwdefaults__ or ())} - {"raise_exception"}
        for option in options:
            if option not in takes:
                raise unexpected("Case", option, takes)
        self.f = f
        self.inputs = inputs
        self.name = name or function_name(f)
        self.order = order
        self.options = options
        caller = sys._getframe(1)
        self.file = caller.f_code.co_filename
        """The file that makes the case, to which annotations of a failure point."""
        self.line = caller.f_lineno

    def run(self, **options: Any) -> Report:
        """The report; raises only what bad input or the function itself raises.

        Args:
            options: What differs from the options of the case.
        """
        options = {**self.options, **options}
        if self.order == 1:
            return examine(self.f, self.inputs, **options)
        return gradgradcheck(self.f, self.inputs, raise_exception=False, **options)

    def __repr__(self) -> str:
        """`Case('softmax', order=1)`."""
        return f"Case({self.name!r}, order={self.order})"

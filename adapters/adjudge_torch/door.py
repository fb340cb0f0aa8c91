"""`torch.autograd.gradcheck` and `gradgradcheck`, answered by adjudge."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

import adjudge
from adjudge.check import function_name
from adjudge.findings import ClosesOver


class GradcheckError(adjudge.GradcheckError, TorchGradcheckError):
    """Both `adjudge.GradcheckError` and `torch.autograd.gradcheck.GradcheckError`."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Answers like `torch.autograd.gradcheck`, with its signature: `True`, or it raises.

    With `raise_exception=False` it returns `False` in place of raising. `eps`, `atol` and `rtol`
    left out are automatic; numbers fix them. Differences on purpose: docs/parity.md.

    Raises:
        GradcheckError: A wrong derivative.
        ValueError: No input requires grad; a sparse output.
        NotImplementedError: A mode that an operator does not support, with PyTorch's own words.
    """
    inputs = _checked_inputs(inputs)
    report = adjudge.examine(
        _dense_outputs(func), inputs, eps=eps, atol=atol, rtol=rtol, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_batched_forward_grad=check_batched_forward_grad,
        check_forward_ad=check_forward_ad, check_backward_ad=check_backward_ad,
        fast_mode=fast_mode, masked=masked,
    )  # fmt: skip
    return _answer(report, raise_exception)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Answers like `torch.autograd.gradgradcheck`, with its signature; see `gradcheck`."""
    inputs = _checked_inputs(inputs)
    report = adjudge.gradgradcheck(
        _dense_outputs(func), inputs, grad_outputs, eps=eps, atol=atol, rtol=rtol,
        gen_non_contig_grad_outputs=gen_non_contig_grad_outputs, raise_exception=False,
        nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad,
        check_fwd_over_rev=check_fwd_over_rev, check_rev_over_rev=check_rev_over_rev,
        fast_mode=fast_mode, masked=masked,
    )  # fmt: skip
    return _answer(report, raise_exception)


def _answer(report: adjudge.Report, raise_exception: bool) -> bool:
    __tracebackhide__ = True
    _warn_of_unused(report)
    for finding in report.findings:
        # PyTorch lets an unsupported mode come through as it is, whatever raise_exception says
        if finding.status is adjudge.Status.UNSUPPORTED and finding.cause is not None:
            cause = finding.cause.__cause__
            if cause is None:  # nothing was raised: the graph just ends there
                continue
            raise cause if isinstance(cause, NotImplementedError) else finding.cause
    if not report.counts["comparisons"] and all(
        finding.status is adjudge.Status.UNRESOLVED for finding in report.findings
    ):
        return True  # inputs or outputs without entries: PyTorch has nothing to object
    if not report and raise_exception:
        raise GradcheckError(report)
    return bool(report)


def _warn_of_unused(report: adjudge.Report) -> None:
    """Warns of inputs that the function does not use while it uses other leaves, which PyTorch's
    check would not perturb either: nothing is compared then.
    """
    for finding in report.findings:
        if isinstance(finding.detail, ClosesOver) and finding.detail.unreached:
            warnings.warn(
                f"{report.function} does not use {', '.join(finding.detail.unreached)}: the "
                "derivatives with respect to them are zero. It closes over "
                f"{', '.join(finding.detail.names)}, which are not checked: pass those as inputs",
                stacklevel=4,
            )


def _checked_inputs(given: Any) -> tuple[Any, ...]:
    """Returns the inputs as a tuple; `ValueError` unless a top-level tensor requires grad."""
    inputs = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of "
            "them have requires_grad=True."
        )
    return inputs


def _dense_outputs(func: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*inputs: Any) -> Any:
        outputs = func(*inputs)
        for output in outputs if isinstance(outputs, tuple | list) else (outputs,):
            if isinstance(output, torch.Tensor) and output.layout is not torch.strided:
                raise ValueError(
                    "Sparse output is not supported at gradcheck yet. "
                    "Please call to_dense(masked_grad=...) on the output of fn for gradcheck."
                    if output.layout is not torch._mkldnn  # type: ignore[attr-defined]
                    else "MKLDNN output is not supported at gradcheck yet. "
                    "Please call to_dense(masked_grad=...) on the output of fn for gradcheck."
                )
        return outputs

    checked.__qualname__ = function_name(func)
    checked.__wrapped__ = func  # type: ignore[attr-defined] # as functools.wraps does
    return checked

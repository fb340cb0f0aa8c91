"""`torch.autograd.gradcheck` and `gradgradcheck`, answered by adjudge."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

import adjudge
from adjudge.check import checked_signature, function_name
from adjudge.errors import FlagError
from adjudge.findings import ClosesOver
from adjudge_torch import words


class GradcheckError(adjudge.GradcheckError, TorchGradcheckError):
    """Both `adjudge.GradcheckError` and `torch.autograd.gradcheck.GradcheckError`.

    The message is the report, followed by what PyTorch's check says of the same failures.
    """

    def __init__(self, report: adjudge.Report, words: Sequence[str] = ()) -> None:
        """`words` are PyTorch's."""
        super().__init__(report)
        if words:
            said = "\n  ".join(["in the words of torch.autograd.gradcheck:", *words])
            self.args = (f"{report}\n{said}",)


class ContradictionError(FlagError, AssertionError):
    """Two flags contradict one another; PyTorch's check raises an `AssertionError` for that."""


@checked_signature
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
    _require_one("check_forward_ad", check_forward_ad, "check_backward_ad", check_backward_ad)
    _require_with("check_batched_grad", check_batched_grad, "check_backward_ad", check_backward_ad)
    _require_with(
        "check_batched_forward_grad",
        check_batched_forward_grad,
        "check_forward_ad",
        check_forward_ad,
    )
    inputs = _checked_inputs(inputs)
    if check_forward_ad and any(isinstance(x, torch.Tensor) and x.is_mkldnn for x in inputs):
        raise ValueError("MKLDNN inputs are not support for forward AD gradcheck.")
    function = _CheckedOutputs(func)

    def check() -> adjudge.Report:
        return adjudge.examine(
            function, inputs, eps=eps, atol=atol, rtol=rtol, nondet_tol=nondet_tol,
            check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
            check_batched_grad=check_batched_grad,
            check_batched_forward_grad=check_batched_forward_grad,
            check_forward_ad=check_forward_ad, check_backward_ad=check_backward_ad,
            fast_mode=fast_mode, masked=masked,
        )  # fmt: skip

    return _answer(check, function, inputs, raise_exception, nondet_tol)


@checked_signature
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
    _require_one("check_fwd_over_rev", check_fwd_over_rev, "check_rev_over_rev", check_rev_over_rev)
    _require_with(
        "check_batched_grad", check_batched_grad, "check_rev_over_rev", check_rev_over_rev
    )
    inputs = _checked_inputs(inputs)
    function = _CheckedOutputs(func)

    def check() -> adjudge.Report:
        return adjudge.gradgradcheck(
            function, inputs, grad_outputs, eps=eps, atol=atol, rtol=rtol,
            gen_non_contig_grad_outputs=gen_non_contig_grad_outputs, raise_exception=False,
            nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad,
            check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad,
            check_fwd_over_rev=check_fwd_over_rev, check_rev_over_rev=check_rev_over_rev,
            fast_mode=fast_mode, masked=masked,
        )  # fmt: skip

    return _answer(check, function, inputs, raise_exception, nondet_tol)


def _require_one(name: str, flag: bool, other_name: str, other: bool) -> None:
    """Raises `ContradictionError`, with PyTorch's words, where neither flag is set."""
    if not flag and not other:
        raise ContradictionError(
            f"Expected at least one of {name} or {other_name} to be True: {name}=False and "
            f"{other_name}=False leave nothing to check",
            "switch at least one of them on",
        )


def _require_with(name: str, flag: bool, other_name: str, other: bool) -> None:
    """Raises `ContradictionError`, with PyTorch's words, where a flag is set without the other."""
    if flag and not other:
        raise ContradictionError(
            f"Setting {name}=True requires {other_name} to be True",
            f"pass {other_name}=True, or leave out {name}",
        )


def _answer(
    check: Callable[[], adjudge.Report],
    function: _CheckedOutputs,
    inputs: Sequence[Any],
    raise_exception: bool,
    nondet_tol: float,
) -> bool:
    """Returns whether `check` passes, or raises as PyTorch's check does."""
    __tracebackhide__ = True
    try:
        report = check()
    except adjudge.UnstableOutputError as error:
        raise adjudge.UnstableOutputError(
            f"Expected `func` to return outputs with the same {_unstable(error)} when inputs are "
            f"perturbed: {error.found}",
            error.remedy,
        ) from error
    except adjudge.InputError:
        if not function.returns_nothing:
            raise
        # PyTorch has nothing to object to a function without outputs, and says nothing either.
        warnings.warn(
            f"{function.__qualname__} returns no output: nothing is checked, as in PyTorch",
            stacklevel=4,
        )
        return True
    _warn_of_unused(report)
    problems = [finding for finding in report.findings if not finding.note]
    for finding in problems:
        # PyTorch lets an unsupported mode come through as it is, whatever raise_exception says
        if finding.status is adjudge.Status.UNSUPPORTED and finding.cause is not None:
            cause = finding.cause.__cause__
            if cause is None:  # nothing was raised: the graph just ends there
                continue
            raise cause if isinstance(cause, NotImplementedError) else finding.cause
    if not report.counts["comparisons"] and all(
        finding.status is adjudge.Status.UNRESOLVED for finding in problems
    ):
        return True  # inputs or outputs without entries: PyTorch has nothing to object
    statuses = {(finding.status, finding.mode[:1]) for finding in problems}
    if statuses == {(adjudge.Status.UNDEFINED, "R")}:
        warnings.warn(words.UNDEFINED, stacklevel=4)
    if not report and raise_exception:
        numbering = function.numbering(inputs)
        raise GradcheckError(report, list(words.words_of(report, numbering, nondet_tol)))
    return bool(report)


def _unstable(error: adjudge.UnstableOutputError) -> str:
    """Returns what of an output has changed."""
    found = re.search(r"was (\S+) of shape (.*?) and is (\S+) of shape", error.found)
    return "dtype" if found is not None and found.group(1) != found.group(3) else "shape"


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
                stacklevel=5,
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


class _CheckedOutputs:
    """The function of the caller, of whose outputs those are left that PyTorch's check looks at:
    those that require grad, or all where none does.

    A sparse output raises `ValueError`. An output that is left out and moves with the inputs is
    warned of: it may be detached by accident.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        """Nothing is called yet."""
        self.__wrapped__ = func
        self.__name__ = self.__qualname__ = function_name(func)
        self._left_out: dict[int, torch.Tensor] = {}
        """The outputs that are left out, as they were at the first call."""
        self._complex: dict[int, bool] | None = None
        """For each output that is checked, by its position, whether it is complex."""
        self._empty = False
        self._warned = False

    @property
    def returns_nothing(self) -> bool:
        """Whether the function has returned no outputs at all."""
        return self._empty

    def numbering(self, inputs: Sequence[Any]) -> words.Numbering:
        """Returns how PyTorch counts these inputs, and the outputs of the first call."""
        marked = [
            k for k, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad
        ]
        parts = self._complex or {}
        return words.Numbering(
            marked,
            list(parts),
            [number for number, k in enumerate(parts) if parts[k]],
            [number for number, k in enumerate(marked) if inputs[k].is_complex()],
        )

    def __call__(self, *inputs: Any) -> Any:
        outputs = self.__wrapped__(*inputs)
        several = outputs if isinstance(outputs, tuple | list) else (outputs,)
        for output in several:
            _require_dense(output)
        if self._complex is None:
            self._empty = not several
            self._left_out = _without_grad(several)
            self._complex = {
                k: output.is_complex()
                for k, output in enumerate(several)
                if isinstance(output, torch.Tensor)
                and (output.is_floating_point() or output.is_complex())
                and k not in self._left_out
            }
        if not self._left_out:
            return outputs
        for k, before in self._left_out.items():
            if not self._warned and not _same(outputs[k], before):
                self._warned = True
                warnings.warn(
                    f"output {k} of {self.__qualname__} does not require grad, yet it moves with "
                    "the inputs. It is not checked, as in PyTorch; adjudge.gradcheck checks it",
                    stacklevel=2,
                )
        return tuple(None if k in self._left_out else y for k, y in enumerate(outputs))


def _without_grad(outputs: Sequence[Any]) -> dict[int, torch.Tensor]:
    """Returns the floating and complex outputs that do not require grad, if others do."""
    tensors = {k: output for k, output in enumerate(outputs) if isinstance(output, torch.Tensor)}
    if not any(output.requires_grad for output in tensors.values()):
        return {}
    return {
        k: output.detach().clone()
        for k, output in tensors.items()
        if not output.requires_grad and (output.is_floating_point() or output.is_complex())
    }


def _same(output: Any, before: torch.Tensor) -> bool:
    """Returns whether an output is what it was, to the digits of the narrower of two dtypes."""
    return torch.equal(output.detach().to(before.dtype), before)


def _require_dense(output: Any) -> None:
    """Raises `ValueError` in the words of PyTorch where an output is sparse."""
    if isinstance(output, torch.Tensor) and output.layout is not torch.strided:
        kind = "MKLDNN" if output.is_mkldnn else "Sparse"
        raise ValueError(
            f"{kind} output is not supported at gradcheck yet. "
            "Please call to_dense(masked_grad=...) on the output of fn for gradcheck."
        )

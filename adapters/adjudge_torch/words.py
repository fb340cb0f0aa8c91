"""A report in the words of `torch.autograd.gradcheck`, by which tests of others know a failure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from adjudge import Report, Verdict
from adjudge.findings import (
    BatchNotMade,
    BatchRaised,
    BatchUnlikeLoop,
    Disagreement,
    Finding,
    Meaning,
    NonzeroAtZero,
    RealForComplex,
    Rule,
    UndefinedNotZero,
    UndefinedNotZeros,
    UndefinedRaised,
    Unrepeatable,
    WrongAttribute,
)

UNDEFINED = (
    "Backwards compatibility: New undefined gradient support checking feature is enabled by "
    "default, but it may break existing callers of this function. If this is true for you, you "
    'can call this function with "check_undefined_grad=False" to disable the feature'
)
"""The warning that PyTorch gives before it fails for an undefined cotangent."""

ATTRIBUTES = {
    "shape": "Analytical gradient has incorrect size; grad is incorrect size",
    "dtype": "Gradient has dtype mismatch; grad is incorrect type",
    "device": "grad is incorrect device",
}
"""What PyTorch says of a gradient that does not fit its input."""

LAYOUT = re.compile(r"(\w+)(?: \((\d+) sparse, (\d+) dense dimensions\))?")
"""A layout as `TorchArrays.info` names it."""


@dataclass(frozen=True)
class Numbering:
    """How PyTorch counts: inputs that require grad, and outputs that do."""

    inputs: Sequence[int]
    """The positions of the inputs that require grad among all."""
    outputs: Sequence[int]
    """The positions of the outputs that are checked."""
    complex_outputs: Sequence[int] = ()
    """Those of the outputs that are complex."""
    complex_inputs: Sequence[int] = ()

    def input(self, name: str) -> int:
        """Returns the number of an input or cotangent, by a name such as `inputs[2][0, 1]`."""
        kind, k = _position(name)
        if kind == "grad_outputs":
            return len(self.inputs) + k
        return self.inputs.index(k) if k in self.inputs else k

    def output(self, name: str) -> int:
        """Returns the number of an output or gradient, by a name such as `out[1][0, 1]`."""
        kind, k = _position(name)
        if kind == "inputs":  # a gradient that is differentiated once more
            return self.input(name)
        return self.outputs.index(k) if k in self.outputs else 0


def _position(name: str) -> tuple[str, int]:
    """Returns the root of the first accessor path in a name, and the index that follows it."""
    found = re.search(r"(captured\['inputs|inputs|grad_outputs|out)(?:\[(\d+)\])?", name)
    if found is None:
        return "", 0
    return found.group(1).rpartition("'")[2], int(found.group(2) or 0)


def _of_backward(finding: Finding, detail: Unrepeatable) -> bool:
    """Returns whether a backward pass varies: as a rule, or as the function whose derivative is
    taken once more.
    """
    return detail.rule is Rule.VJP or (detail.rule is None and finding.entry.startswith("grad("))


def words_of(report: Report, numbering: Numbering, nondet_tol: float) -> Iterator[str]:
    """Yields what `torch.autograd.gradcheck` says of the same failures, each once."""
    said: dict[str, None] = {}
    for finding in report.ranked:
        if finding.verdict is not Verdict.PASS:
            said |= dict.fromkeys(_words(finding, report, numbering, nondet_tol))
    yield from said


def _words(
    finding: Finding, report: Report, numbering: Numbering, nondet_tol: float
) -> Iterator[str]:
    detail: Any = finding.detail
    if isinstance(detail, Disagreement):
        if detail.meaning is Meaning.DETACHED:
            yield "Numerical gradient for function expected to be zero"
        if finding.verdict is Verdict.FAIL:
            yield from _mismatches(finding, report, numbering)
    elif isinstance(detail, Unrepeatable) and _of_backward(finding, detail):
        yield (
            "Backward is not reentrant, i.e., running backward with same input and grad_output "
            "multiple times gives different values, although analytical gradient matches "
            f"numerical gradient.The tolerance for nondeterminism was {nondet_tol}."
        )
    elif isinstance(detail, NonzeroAtZero) and detail.rule is Rule.VJP:
        yield "backward not multiplied by grad_output"
    elif isinstance(detail, WrongAttribute):
        yield from _attribute(detail)
    elif isinstance(detail, RealForComplex):
        yield "Forward AD gradient has dtype mismatch."
    elif isinstance(detail, UndefinedRaised) and detail.rule is Rule.VJP:
        yield (
            "Expected backward function to handle undefined output grads. Please look at "
            '"Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
        )
    elif isinstance(detail, UndefinedNotZero):
        yield (
            "Expected all input grads to be undefined or zero when all output grads are undefined "
            'or zero. Please look at "Notes about undefined output gradients" in '
            '"tools/autograd/derivatives.yaml"'
        )
    elif isinstance(detail, UndefinedNotZeros | UndefinedRaised):
        output = numbering.output(finding.entry)
        yield f"Mismatch in tangent values for output with index: {output}"
    elif isinstance(detail, BatchRaised | BatchUnlikeLoop | BatchNotMade):
        forward = getattr(detail, "rule", None) is Rule.JVP
        yield (
            "gradcheck failed while testing batched gradient computation with forward-mode AD."
            if forward
            else "gradcheck or gradgradcheck failed while testing batched gradient computation."
        )


def _attribute(detail: WrongAttribute) -> Iterator[str]:
    if detail.rule is Rule.JVP:
        yield "Forward AD gradient has dtype mismatch."
        return
    if detail.attribute != "layout":
        yield ATTRIBUTES[detail.attribute]
        return
    found, expected = LAYOUT.match(str(detail.found)), LAYOUT.match(str(detail.expected))
    assert found is not None
    assert expected is not None
    if found.group(1) != expected.group(1):
        yield f"grad is incorrect layout (torch.{found.group(1)} is not torch.{expected.group(1)})"
        return
    kind = found.group(1).replace("_coo", "")
    for number, name in ((2, "sparse_dim"), (3, "dense_dim")):
        if found.group(number) != expected.group(number):
            yield (
                f"grad is {kind} tensor, but has incorrect {name} {found.group(number)}, expected "
                f"{expected.group(number)}"
            )


def _mismatches(finding: Finding, report: Report, numbering: Numbering) -> Iterator[str]:
    """Yields a line for each pair of an output and an input in which an entry is wrong."""
    forward = finding.mode.startswith("F")
    pairs = {
        (numbering.output(entry.of), numbering.input(entry.wrt))
        for entry in report.entries
        if entry.mode == finding.mode and entry.excess > 1
    }
    how = "computed with forward mode " if forward else ""
    split = numbering.complex_inputs if forward else numbering.complex_outputs
    kind = "inputs" if forward else "outputs"
    for output, k in sorted(pairs):
        parts = ("imaginary", "real") if (k if forward else output) in split else ()
        line = f"Jacobian {how}mismatch for output {output} with respect to input {k},"
        yield from [f"While considering the {p} part of complex {kind} only, {line}" for p in parts]
        if not parts:
            yield line

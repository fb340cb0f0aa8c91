"""This module checks what a derivative is beside its values: shape, dtype, device and layout."""

from __future__ import annotations

from collections.abc import Iterator

from adjudge.engine import MaybeArrays
from adjudge.findings import Attribute, Finding, Remedy, Rule, Status, WrongAttribute
from adjudge.properties.purity import Identities


def metadata(checks: Identities, gradients: MaybeArrays) -> Iterator[Finding]:
    """Checks that shape, dtype, device and layout of each gradient are its input's."""
    backend = checks.problem.backend
    for leaf, gradient in zip(checks.problem.X.leaves, gradients, strict=True):
        if gradient is None:
            continue
        info, like = backend.arrays.info(gradient), leaf.info
        mode = "R" + checks.problem.modes_taken
        yield from elsewhere(checks, mode, Rule.VJP, leaf.name, info.device, like.device)
        for status, attribute, found, expected in (
            (Status.WRONG_SHAPE, Attribute.SHAPE, info.shape, like.shape),
            (Status.WRONG_DTYPE, Attribute.DTYPE, info.dtype, like.dtype),
            (Status.WRONG_LAYOUT, Attribute.LAYOUT, info.layout, like.layout),
        ):
            if found != expected:
                detail = WrongAttribute(Rule.VJP, attribute, found, expected)
                yield Finding(status, mode, leaf.name, detail, Remedy.RETURN_ATTRIBUTE)


def first_elsewhere(checks: Identities) -> Iterator[Finding]:
    """Checks that gradients that are differentiated again are on the devices of their inputs."""
    problem = checks.problem
    if problem.modes_taken.startswith("R"):
        inputs = problem.X.leaves[: problem.primal_inputs]
        for leaf, gradient in zip(inputs, checks.base.Y.leaves, strict=True):
            found, expected = gradient.info.device, leaf.info.device
            yield from elsewhere(checks, problem.modes_taken, Rule.VJP, leaf.name, found, expected)


def elsewhere(
    checks: Identities, mode: str, rule: Rule, name: str, found: str, expected: str
) -> Iterator[Finding]:
    """Checks that what a rule made of `name` is on the device of what it belongs to."""
    checks.compared += 1
    if found != expected:
        detail = WrongAttribute(rule, Attribute.DEVICE, found, expected)
        yield Finding(Status.WRONG_DEVICE, mode, name, detail, Remedy.RETURN_ATTRIBUTE)

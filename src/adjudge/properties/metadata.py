"""What a derivative is beside its values: shape, dtype, device and layout."""

from __future__ import annotations

from collections.abc import Iterator

from adjudge.engine import MaybeArrays
from adjudge.findings import Finding, Status
from adjudge.properties.identities import Identities


def metadata(checks: Identities, gradients: MaybeArrays) -> Iterator[Finding]:
    """Shape, dtype, device and layout of each gradient are its input's."""
    backend = checks.problem.backend
    for leaf, gradient in zip(checks.problem.X.leaves, gradients, strict=True):
        if gradient is None:
            continue
        info = backend.arrays.info(gradient)
        mode = "R" + checks.problem.modes_taken
        yield from elsewhere(
            checks, mode, "gradient", leaf.name, info.device, "input", leaf.info.device
        )
        for status, what, found, expected in (
            (Status.WRONG_SHAPE, "shape", info.shape, leaf.info.shape),
            (Status.WRONG_DTYPE, "dtype", info.dtype, leaf.info.dtype),
            (Status.WRONG_LAYOUT, "layout", info.layout, leaf.info.layout),
        ):
            if found != expected:
                yield Finding(
                    status,
                    mode,
                    leaf.name,
                    f"the gradient of {leaf.name} has {what} {found}, the input has "
                    f"{what} {expected}\n"
                    f"  return a gradient of the {what} of its input",
                )


def first_elsewhere(checks: Identities) -> Iterator[Finding]:
    """Gradients that are differentiated again are on the devices of their inputs."""
    problem = checks.problem
    if problem.modes_taken.startswith("R"):
        inputs = problem.X.leaves[: problem.base_inputs]
        for leaf, gradient in zip(inputs, checks.base.Y.leaves, strict=True):
            yield from elsewhere(
                checks, problem.modes_taken, "gradient", leaf.name, gradient.info.device, "input",
                leaf.info.device,
            )  # fmt: skip


def elsewhere(
    checks: Identities, mode: str, what: str, name: str, found: str, like: str, expected: str
) -> Iterator[Finding]:
    """`what` of `name` is on the device of `like`."""
    checks.compared += 1
    if found != expected:
        yield Finding(
            Status.WRONG_DEVICE,
            mode,
            name,
            f"the {what} of {name} is on device {found}, the {like} is on {expected}\n"
            f"  return a {what} on the device of its {like}",
        )

"""Engines by name: which there are, why one is absent, and what installs it."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable

import numpy as np
import pytest

from adjudge.engine import registry
from adjudge.errors import BackendNotInstalledError, NotSupportedError, did_you_mean


def selected(named: Iterable[str]) -> list[str]:
    """The engines of the fixture: those named, else all that are installed and can differentiate a
    function. A skipped test for each other engine that exists would hide what was skipped for a
    reason of its own.
    """
    return list(named) or [name for name in registry.differentiating() if installed(name)]


def absent() -> list[str]:
    """The engines that are not installed, and can differentiate a function."""
    return [name for name in registry.differentiating() if not installed(name)]


def installed(name: str) -> bool:
    """Whether the engine can be imported, which is not tried."""
    return sys.modules.get(name) is not None or importlib.util.find_spec(name) is not None


def unknown(name: str) -> str | None:
    """Why no engine has this name and what to do, in two lines; `None` if one has.

    No engine is imported.
    """
    names = registry.names()
    if name in names:
        return None
    meant = did_you_mean(name, names, after=" Else ")
    return (
        f"no engine is called '{name}'; there are: {', '.join(names)}\n"
        f"  {meant}check the spelling, or write an adapter: docs/how-to/write-an-adapter.md"
    )


@functools.cache
def why_absent(name: str) -> str | None:
    """What keeps the engine from holding an array, and what to do; `None` where nothing does.

    An import is not enough: some engines can be imported on a machine without the device.
    """
    try:
        backend = registry.backend_named(name)
    except BackendNotInstalledError as error:
        return f"{error.found}; {error.remedy}"
    reason = backend.environment.unavailable()
    if reason is None:
        try:
            backend.arrays.make(np.zeros(1), "float32")
        except Exception as error:  # an engine says in its own way that its device is missing
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    if reason is None:
        return None
    return f"backend '{name}' is installed and can hold no array here: {reason}"


@functools.cache
def device_of(name: str, wanted: tuple[str, ...]) -> str | None:
    """The first of the devices called `wanted` on which the engine can hold an array, by the name
    that was given; `None`: on none of them.
    """
    backend = registry.backend_named(name)
    for device in wanted:
        try:
            backend.arrays.make(np.zeros(1), "float32", device)
        except NotSupportedError:
            continue
        return device
    return None


def why_left_out(name: str, wanted: tuple[str, ...]) -> str | None:
    """Why nothing can be checked on the engine: it is absent, or has none of the devices that are
    wanted, if any are; `None` where it can.
    """
    reason = why_absent(name)
    if reason is not None or not wanted or device_of(name, wanted) is not None:
        return reason
    devices = ", ".join(registry.backend_named(name).arrays.devices())
    return f"backend '{name}' has no device {_either(wanted)}; it has: {devices}"


def _either(wanted: tuple[str, ...]) -> str:
    return " or ".join(f"'{device}'" for device in wanted)


def at_start(
    names: Iterable[str], option: str, *, required: bool, devices: tuple[str, ...] = ()
) -> None:
    """Raises `UsageError` where one of the names is unknown, or is required and absent, or is
    required and has none of the devices.
    """
    for name in names:
        if reason := unknown(name):
            raise pytest.UsageError(f"{option}: {reason}")
        if required and (reason := why_left_out(name, devices)):
            raise pytest.UsageError(f"{option}: engine '{name}' is required, and {reason}")


def demand_device(names: Iterable[str], devices: tuple[str, ...]) -> None:
    """Raises `UsageError` where no engine that is here has any of the devices: a misspelt name
    would leave out every test.
    """
    present = [name for name in names if why_absent(name) is None]
    if not devices or not present or any(device_of(name, devices) for name in present):
        return
    there = "; ".join(
        f"{name}: {', '.join(registry.backend_named(name).arrays.devices())}" for name in present
    )
    raise pytest.UsageError(
        f"--adjudge-device: no engine has a device {_either(devices)}\n  the devices are {there}"
    )


def in_words(name: str, devices: tuple[str, ...] = ()) -> str:
    """`torch 2.13.0 (cpu and 2 more)`; without devices where the engine is not imported yet. With
    `devices` the one that the checks run on: `torch 2.13.0 (on cuda:0)`.
    """
    if name in sys.modules:
        reason = why_absent(name)
        if reason is None:
            backend = registry.backend_named(name)
            if devices:
                device = device_of(name, devices)
                place = f"no {_either(devices)}" if device is None else f"on {device}"
                return f"{name} {backend.environment.version} ({place})"
            first, *others = backend.arrays.devices()
            more = f" and {len(others)} more" if others else ""
            return f"{name} {backend.environment.version} ({first}{more})"
    for distribution in (name, name.replace("_", "-")):
        try:
            return f"{name} {importlib.metadata.version(distribution)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{name} (version unknown)" if installed(name) else f"{name} (absent)"

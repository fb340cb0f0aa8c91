"""The marks `adjudge_skip` and `adjudge_xfail`: read strictly, and expired when no longer true."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest
from packaging.version import InvalidVersion, Version

from adjudge.engine import AutodiffBackend, registry
from adjudge.errors import AdjudgeError, did_you_mean
from adjudge.findings import Status, Verdict
from adjudge.report import GradcheckError
from adjudge_pytest import engines

CAPABILITIES = ("compile", "jvp", "vmap")
"""What an engine may lack: the names that `AutodiffBackend.capabilities` knows."""

ARGUMENTS = {
    "adjudge_skip": ("backend", "reason", "lacks", "below"),
    "adjudge_xfail": ("backend", "reason", "raises", "status"),
}


@dataclass(frozen=True)
class Exemption:
    """A mark, for the engines that it names."""

    mark: str
    engines: tuple[str, ...]
    reason: str
    lacks: str | None = None
    below: str | None = None
    raises: tuple[type[BaseException], ...] | None = None
    status: str | None = None

    @property
    def skips(self) -> bool:
        """Whether the test does not run."""
        return self.mark == "adjudge_skip"

    def untrue(self, backend: AutodiffBackend) -> str | None:
        """Why the condition of a skip no longer holds; `None` if it holds, or there is none."""
        if self.lacks in backend.capabilities:
            return f"{backend.name} {backend.environment.version} has {self.lacks}"
        if self.below is not None and _version(backend) >= Version(self.below):
            return f"{backend.name} {backend.environment.version} is not below {self.below}"
        return None

    def expired(self, why: str) -> str:
        """The line of the failure."""
        return f"exemption expired: {self.reason}; {why}: remove the mark {self.mark}"

    def unlike(self, error: BaseException) -> str | None:
        """How a failure differs from the one that was expected; `None` where it does not."""
        if self.raises is not None and not isinstance(error, self.raises):
            expected = " or ".join(kind.__name__ for kind in self.raises)
            return f"raises={expected} is expected, and {type(error).__name__} was raised"
        if self.status is not None:
            seen = _statuses(error)
            if self.status not in seen:
                what = f"found {', '.join(seen)}" if seen else f"raised {type(error).__name__}"
                return f"status={self.status!r} is expected, and the test {what}"
        if self.raises is None and not isinstance(error, AdjudgeError | AssertionError):
            return (
                f"a failed check or assertion is expected, and {type(error).__name__} was raised; "
                f"if that is what is known to happen, give raises={type(error).__name__}"
            )
        return None


def _statuses(error: BaseException) -> list[str]:
    """What the report found that fails or stays open."""
    if not isinstance(error, GradcheckError):
        return []
    open_ones = [f.status for f in error.report.ranked if f.verdict is not Verdict.PASS]
    return [str(status) for status in dict.fromkeys(open_ones)]


def _version(backend: AutodiffBackend) -> Version:
    version = backend.environment.version
    try:
        return Version(version)
    except InvalidVersion:
        pytest.fail(
            f"below= needs a version of {backend.name}, which says {version!r}: "
            "give lacks=, or neither",
            pytrace=False,
        )


def of(item: pytest.Item, engine: str) -> list[Exemption]:
    """The exemptions of the test on this engine."""
    return [one for one in _read(item) if engine in one.engines]


def check(item: pytest.Item, engine: str | None) -> None:
    """Raises `UsageError` for an engine that nobody knows, and for a mark that makes no sense."""
    if engine is not None and (reason := engines.unknown(engine)):
        raise pytest.UsageError(f"{item.nodeid}: {reason}")
    for mark in _marks(item):
        # an inherited mark of a class or module may find tests without the fixture there
        if engine is None and any(mark is own for own in item.own_markers):
            _refuse(
                item,
                mark,
                "the test does not use the fixture adjudge_backend",
                "name the fixture among its arguments, or remove the mark",
            )
    list(_read(item))


def _marks(item: pytest.Item) -> list[pytest.Mark]:
    return [mark for mark in item.iter_markers() if mark.name in ARGUMENTS]


def _read(item: pytest.Item) -> Iterator[Exemption]:
    for mark in _marks(item):
        known = ARGUMENTS[mark.name]
        for name in mark.kwargs:
            if name not in known:
                _refuse(
                    item,
                    mark,
                    f"unknown argument {name!r}",
                    did_you_mean(name, known, after=" ") + f"The arguments are: {', '.join(known)}",
                )
        given = mark.kwargs
        reason = given.get("reason")
        if not isinstance(reason, str) or not reason.strip():
            missing = "has no reason" if reason is None else f"reason={reason!r}"
            _refuse(item, mark, missing, 'say why, for those who meet it: reason="..."')
        yield Exemption(
            mark.name,
            _engines(item, mark),
            reason,
            _lacks(item, mark),
            _below(item, mark),
            _raises(item, mark),
            _status(item, mark),
        )


def _engines(item: pytest.Item, mark: pytest.Mark) -> tuple[str, ...]:
    named = [*mark.args, *([mark.kwargs["backend"]] if "backend" in mark.kwargs else [])]
    names = [n for one in named for n in (one if isinstance(one, list | tuple) else [one])]
    if not names:
        _refuse(item, mark, "names no engine", f"the engines are: {', '.join(registry.names())}")
    for name in names:
        if not isinstance(name, str):
            _refuse(item, mark, f"{name!r} is no name", "give the names of engines, as text")
        if reason := engines.unknown(name):
            raise pytest.UsageError(f"{item.nodeid}: mark {mark.name}: {reason}")
    return tuple(names)


def _lacks(item: pytest.Item, mark: pytest.Mark) -> str | None:
    lacks: str | None = mark.kwargs.get("lacks")
    if lacks is None:
        return None
    if "below" in mark.kwargs:
        _refuse(item, mark, "lacks= and below= are two conditions", "give one of them")
    _one_of(item, mark, "lacks", lacks, CAPABILITIES)
    return lacks


def _below(item: pytest.Item, mark: pytest.Mark) -> str | None:
    below: str | None = mark.kwargs.get("below")
    if below is None:
        return None
    try:
        Version(below)
    except (InvalidVersion, TypeError):
        _refuse(item, mark, f"below={below!r} is no version", 'give one as text: below="1.2"')
    return below


def _raises(item: pytest.Item, mark: pytest.Mark) -> tuple[type[BaseException], ...] | None:
    raises: Any = mark.kwargs.get("raises")
    if raises is None:
        return None
    kinds = raises if isinstance(raises, tuple) else (raises,)
    if not kinds or not all(isinstance(k, type) and issubclass(k, BaseException) for k in kinds):
        _refuse(item, mark, f"raises={raises!r}", "give the class of an exception, or several")
    return kinds


def _status(item: pytest.Item, mark: pytest.Mark) -> str | None:
    status = mark.kwargs.get("status")
    if status is None:
        return None
    _one_of(item, mark, "status", status, [str(one) for one in Status])
    return str(status)


def _one_of(
    item: pytest.Item, mark: pytest.Mark, name: str, value: object, allowed: Iterable[str]
) -> None:
    allowed = list(allowed)
    if not isinstance(value, str) or value not in allowed:
        _refuse(
            item,
            mark,
            f"{name}={value!r}",
            did_you_mean(value, allowed, after=" ") + f"Known: {', '.join(allowed)}",
        )


def _refuse(item: pytest.Item, mark: pytest.Mark, found: str, remedy: str) -> NoReturn:
    raise pytest.UsageError(f"{item.nodeid}: mark {mark.name}: {found}\n  {remedy}")

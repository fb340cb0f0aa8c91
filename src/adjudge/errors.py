"""What adjudge raises: two lines each, what was found and what to do about it."""

from __future__ import annotations


class AdjudgeError(Exception):
    """Base of every exception that adjudge itself raises."""

    def __init__(self, found: str, remedy: str = "") -> None:
        """`found` names value, shape, dtype or device; `remedy` says what to do."""
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}\n  {remedy}" if remedy else found)


class InputError(AdjudgeError, ValueError):
    """An argument that cannot be checked: raised before any comparison starts."""


class FlagError(InputError):
    """Two arguments that contradict one another."""


class BackendError(AdjudgeError):
    """No adapter can take these arrays."""


class UnknownFrameworkError(BackendError, TypeError):
    """An array of a framework for which no adapter is registered."""


class BackendNotInstalledError(BackendError, ImportError):
    """A known framework whose package is not installed, or whose adapter fails to import."""


class MixedFrameworksError(BackendError, TypeError):
    """Checked leaves that belong to two frameworks."""


class NotSupportedError(AdjudgeError, NotImplementedError):
    """An operation that this engine does not offer. Never silently skipped."""

    def bare(self) -> NotSupportedError:
        """Itself without the frames that it passed, which would keep the arrays of a check alive
        for as long as its report is kept.
        """
        error: BaseException | None = self
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__
        return self


class UnstableOutputError(AdjudgeError, AssertionError):
    """A function whose output changes its structure, shape or dtype between evaluations."""

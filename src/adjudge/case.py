"""A check as data: what a Python file declares, and the command line runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjudge.report import Report
from adjudge.verbs import examine, gradgradcheck


class Case:
    """`Case(f, inputs, ...)`: further keywords are those of `gradcheck`.

    With `order=2` they are those of `gradgradcheck`. Nothing is computed before `run`.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        inputs: Any,
        *,
        name: str | None = None,
        order: int = 1,
        **options: Any,
    ) -> None:
        """See the class."""
        self.f = f
        self.inputs = inputs
        self.name = name or getattr(f, "__name__", None) or repr(f)
        self.order = order
        self.options = options

    def run(self) -> Report:
        """The report; raises only what bad input or the function itself raises."""
        if self.order == 1:
            return examine(self.f, self.inputs, **self.options)
        return gradgradcheck(self.f, self.inputs, raise_exception=False, **self.options)

    def __repr__(self) -> str:
        """`Case('softmax', order=1)`."""
        return f"Case({self.name!r}, order={self.order})"

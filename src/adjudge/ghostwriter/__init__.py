"""Tests that are written for the derivatives of a library: `adjudge write MODULE`.

Its modules, each of which may import those above it:

- `subjects`: what is differentiable in a module, with its parameters.
- `inputs`: arguments that are proposed, from examples in documentation or by a search.
- `conventions`: the ways in which libraries call a derivative by hand.
- `trial`: which of them work, and what adjudge says of the function there.
- `writer`: the verb `write`, over processes that may hang or die under a function, and the tests
  as a file of pytest.

Invariant: no text of the library is evaluated. Its functions are called, and nothing else.
"""

from adjudge.ghostwriter.subjects import LeftOut, Why, imported, not_imported
from adjudge.ghostwriter.trial import Found
from adjudge.ghostwriter.writer import Written, write

__all__ = ["Found", "LeftOut", "Why", "Written", "imported", "not_imported", "write"]

"""The adapter under the conformance kit of adjudge."""

from adjudge.conformance import assert_conforms

EXCUSED = {"vmap": "autograd has no batching", "compile": "autograd has no compiler"}


def test_the_adapter_conforms():
    assert_conforms("autograd", excused=EXCUSED)

"""Which adapter an array or a name belongs to, and what is said where there is none."""

import sys
from importlib import metadata
from types import ModuleType

import numpy as np
import pytest

from adjudge import BackendError, ByHand, InputError, examine, gradcheck
from adjudge.engine import registry
from adjudge.engine.arrays import PlainBackend
from adjudge.engine.registry import GROUP, Entry
from adjudge.errors import BackendNotInstalledError, MixedFrameworksError, UnknownFrameworkError

X = np.asarray([0.3, -1.2])
RULE = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))


class Foreign:
    """Looks like an array of the framework `nowhere`."""

    shape = (2,)
    dtype = "float32"


Foreign.__module__ = "nowhere.arrays"


class Fake(PlainBackend):
    """NumPy under another name."""

    def __init__(self):
        super().__init__(np)
        self.name = "fakeframe"

    def owns(self, leaf):
        return isinstance(leaf, np.ndarray | Foreign)


@pytest.fixture
def register(monkeypatch):
    """Puts entry points `name=value` in the place of those that are installed."""

    def registered(**values):
        entries = tuple(
            Entry(name, metadata.EntryPoint(name, value, GROUP)) for name, value in values.items()
        )
        monkeypatch.setattr(registry, "entries", lambda: entries)

    return registered


def module(monkeypatch, name, **contents):
    made = ModuleType(name)
    vars(made).update(contents)
    monkeypatch.setitem(sys.modules, name, made)


def test_a_known_framework_that_is_not_installed_names_the_command(register, monkeypatch):
    def missing():
        raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")

    register(nowhere="adapter_without_framework:Backend")
    module(monkeypatch, "adapter_without_framework", __getattr__=lambda name: missing())

    with pytest.raises(BackendNotInstalledError) as caught:
        gradcheck(RULE, (X, Foreign()))

    assert caught.value.found == (
        "backend 'nowhere' is known, but the package 'nowhere' is not installed"
    )
    assert caught.value.remedy == "install it: pip install nowhere"
    assert isinstance(caught.value, ImportError)


def test_the_command_names_the_extra_of_the_distribution():
    point = next(iter(metadata.entry_points(group=GROUP, name="torch")))

    entry = Entry("torch", point)

    assert "pip install 'adjudge[torch]'" == entry.command


def test_an_adapter_that_fails_to_import_shows_its_own_error(register, tmp_path, monkeypatch):
    (tmp_path / "broken_adapter.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    register(nowhere="broken_adapter:Backend")

    with pytest.raises(BackendNotInstalledError) as caught:
        gradcheck(RULE, X, backend="nowhere")

    assert "(broken_adapter:Backend) fails to import" in caught.value.found
    assert "ZeroDivisionError: division by zero" in caught.value.found
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_broken_adapter_ends_the_checks_of_its_own_objects_alone(register, tmp_path, monkeypatch):
    (tmp_path / "broken_adapter.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    module(monkeypatch, "nowhere")
    register(nowhere="broken_adapter:Backend")

    assert gradcheck(RULE, X)
    for theirs in (Foreign(), [X, Foreign()]):
        with pytest.raises(BackendNotInstalledError, match="broken_adapter:Backend"):
            gradcheck(RULE, theirs)


def test_an_adapter_whose_own_import_is_missing_is_broken_and_not_uninstalled(register):
    register(nowhere="no_such_adapter_module:Backend")

    with pytest.raises(BackendNotInstalledError) as caught:
        gradcheck(RULE, X, backend="nowhere")

    assert "No module named 'no_such_adapter_module'" in caught.value.found
    assert "pip install" not in str(caught.value)


def test_an_adapter_without_the_promised_class_is_broken(register, monkeypatch):
    register(nowhere="empty_adapter:Backend")
    module(monkeypatch, "empty_adapter")

    with pytest.raises(BackendNotInstalledError, match="AttributeError"):
        gradcheck(RULE, X, backend="nowhere")


def test_an_unknown_name_lists_the_known_ones(register):
    register(aframe="a:B", zframe="z:B")

    with pytest.raises(UnknownFrameworkError) as caught:
        gradcheck(RULE, X, backend="tocrh")

    assert caught.value.found.startswith("no adapter is registered for backend 'tocrh'")
    assert caught.value.found.endswith("registered: numpy, array_api_strict, aframe, zframe")
    assert "spelling" in caught.value.remedy


def test_an_unknown_array_lists_the_known_frameworks(register):
    register()

    with pytest.raises(UnknownFrameworkError, match="registered: none"):
        gradcheck(RULE, (X, Foreign()))


def test_an_adapter_is_found_by_the_root_module_of_the_array(register, monkeypatch):
    register(nowhere="fake_adapter:Fake")
    module(monkeypatch, "fake_adapter", Fake=Fake)

    backend = registry.backend_of(Foreign(), "inputs[0]")

    assert "fakeframe" == backend.name


def test_an_adapter_is_found_by_its_name(register, monkeypatch):
    register(anything="fake_adapter_by_name:Fake")
    module(monkeypatch, "fake_adapter_by_name", Fake=Fake)

    report = examine(RULE, X, backend="anything")

    assert report
    assert "fakeframe" == report.provenance.backend


def test_no_adapter_is_imported_for_arrays_that_are_not_its_own(register):
    register(nowhere="this_module_does_not_exist:Backend")

    report = examine(RULE, X)

    assert report


def test_an_adapter_is_given_as_an_instance():
    report = examine(RULE, X, backend=Fake())

    assert report
    assert "fakeframe" == report.provenance.backend


def test_an_adapter_that_does_not_own_the_arrays_finds_nothing_to_check():
    class Empty(Fake):
        def owns(self, leaf):
            return False

    with pytest.raises(ValueError, match="no input has a floating or complex array"):
        gradcheck(RULE, X, backend=Empty())


def test_what_is_no_engine_and_no_name_of_one_is_refused(register):
    register(fakeframe="whatever:make")
    fakeframe = ModuleType("fakeframe.numpy")

    for given, remedy in ((fakeframe, "give its name: 'fakeframe'"), (3, "give the name of one")):
        with pytest.raises(InputError, match="which is no engine and no name of one") as caught:
            examine(RULE, X, backend=given)
        assert remedy in caught.value.remedy


def test_an_array_of_another_framework_than_that_of_the_check_names_both(strictest):
    for wrt in (None, 0):
        with pytest.raises(InputError) as caught:
            gradcheck(RULE, strictest.asarray(X), backend=Fake(), wrt=wrt)

        assert caught.value.found == (
            "inputs[0] belongs to array_api_strict, and the check is on fakeframe"
        )
        assert "one of NumPy" in caught.value.remedy


def test_what_looks_like_an_array_of_a_known_framework_is_not_said_to_be_of_an_unknown(
    register, monkeypatch
):
    module(monkeypatch, "adapter_of_nowhere", make=lambda: PlainBackend(np))
    register(nowhere="adapter_of_nowhere:make")

    with pytest.raises(UnknownFrameworkError) as caught:
        gradcheck(RULE, Foreign())

    assert caught.value.found.endswith("nowhere.arrays.Foreign, which is no array of nowhere")


def test_two_frameworks_among_the_checked_inputs_are_named(strictest):
    rule = ByHand(lambda a, b: a, vjp=lambda a, b, w: (w, None))
    inputs = (X, strictest.asarray(X))

    with pytest.raises(MixedFrameworksError) as caught:
        gradcheck(rule, inputs)
    report = examine(rule, inputs, wrt=0)

    assert "inputs[0] belongs to numpy and inputs[1] to array_api_strict" == caught.value.found
    assert "wrt=" in caught.value.remedy
    assert isinstance(caught.value, BackendError)
    assert report


def test_the_installed_adapters_are_known_by_name_alone():
    before = set(sys.modules)

    roots = [entry.root for entry in registry.entries()]

    assert roots == sorted(roots)
    assert {"torch", "jax"} <= set(roots)
    assert not {"torch", "jax"} & (set(sys.modules) - before)

"""What the user chose: the command line over the environment over the configuration file."""

from __future__ import annotations

import os
import re
from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Settings:
    """The choices of one run."""

    backends: tuple[str, ...]
    """Engines of the fixture; empty: all that differentiate."""
    required: tuple[str, ...]
    """Engines without which, or without a comparison on which, the run fails."""
    seed: int
    run_skipped: bool
    devices: tuple[str, ...] = ()
    """Names of devices: each engine is checked on the first that it has; empty: on its default."""
    json: Path | None = None
    html: Path | None = None
    """Files that hold what every check of the run came to."""

    @property
    def named(self) -> tuple[str, ...]:
        """Every engine that was named, once."""
        return tuple(dict.fromkeys([*self.backends, *self.required]))


SETTINGS = pytest.StashKey[Settings]()


def add_options(parser: pytest.Parser) -> None:
    """The options of the command line, and the same options of the configuration file."""
    group = parser.getgroup("adjudge", "derivatives (adjudge)")
    group.addoption(
        "--adjudge-backend",
        action="append",
        default=[],
        metavar="NAME[,NAME]",
        help="engines on which tests with the fixture adjudge_backend run; may be repeated "
        "(or ADJUDGE_BACKEND in the environment). Default: all that differentiate",
    )
    group.addoption(
        "--adjudge-require",
        action="append",
        default=[],
        metavar="NAME[,NAME]",
        help="engines that have to be there and to be checked: the run fails where one is absent, "
        "or made no comparison; may be repeated (or ADJUDGE_REQUIRE in the environment)",
    )
    group.addoption(
        "--adjudge-device",
        action="append",
        default=[],
        metavar="NAME[,NAME]",
        help="device on which checks of the fixture adjudge_backend run, named as `adjudge "
        "backends` lists it; of several names each engine takes the first that it has, and an "
        "engine that has none is skipped (or ADJUDGE_DEVICE in the environment)",
    )
    group.addoption(
        "--adjudge-seed",
        type=_seed,
        default=0,
        metavar="N",
        help="varies the random arrays and probes of the fixture, which otherwise depend on the "
        "name of the test alone (default: 0)",
    )
    group.addoption(
        "--adjudge-run-skipped",
        action="store_true",
        help="run what adjudge_skip skips without a condition, and fail what passes",
    )
    for kind, about in (("json", "JSON, as `adjudge check --json` does"), ("html", "one page")):
        group.addoption(
            f"--adjudge-{kind}",
            type=Path,
            metavar="FILE",
            help=f"write what every check of the run came to as {about}",
        )
    for name, about in (
        ("adjudge_backend", "engines of the fixture adjudge_backend, as --adjudge-backend"),
        ("adjudge_require", "engines that are required, as --adjudge-require"),
        ("adjudge_device", "device of the fixture adjudge_backend, as --adjudge-device"),
    ):
        parser.addini(name, about, type="linelist", default=[])


def read(config: pytest.Config) -> Settings:
    """The settings of this run; the names of engines are not looked up."""
    return Settings(
        _chosen(config, "adjudge_backend"),
        _chosen(config, "adjudge_require"),
        config.getoption("adjudge_seed"),
        config.getoption("adjudge_run_skipped"),
        _chosen(config, "adjudge_device"),
        config.getoption("adjudge_json"),
        config.getoption("adjudge_html"),
    )


def _chosen(config: pytest.Config, option: str) -> tuple[str, ...]:
    # an empty variable says nothing: a CI sets it so where a matrix leaves it out
    for source in (
        config.getoption(option),
        [os.environ.get(option.upper(), "")],
        config.getini(option),
    ):
        names = [name for text in source for name in re.split(r"[,\s]+", text) if name]
        if names:
            return tuple(dict.fromkeys(names))
    return ()


def _seed(text: str) -> int:
    if not text.strip().isdecimal():  # argparse names the option before this
        raise ArgumentTypeError(f"{text!r} is no seed: give a non-negative integer")
    return int(text)

"""HIPS autograd as an engine of adjudge."""

from adjudge_autograd.backend import AutogradBackend as AutogradBackend

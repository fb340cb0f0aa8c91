"""Functions with derivatives by hand that other processes import by name."""

import multiprocessing
import os

import numpy as np


def waves(x):
    return np.sin(x) * np.sum(x**2)


def waves_vjp(x, w):
    return w * np.cos(x) * np.sum(x**2) + 2 * x * np.sum(w * np.sin(x))


def one_entry_off(x, w):
    return waves_vjp(x, w) * np.where(np.arange(x.size) == 1, 1.001, 1.0)


def dies_elsewhere(x):
    """Ends the process that it runs in, unless that is the first one."""
    if multiprocessing.parent_process() is not None:
        os._exit(3)
    return waves(x)

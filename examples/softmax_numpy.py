"""Softmax cross-entropy with a derivative written by hand, once right and once subtly wrong."""

import numpy as np

import adjudge


def cross_entropy(logits, labels):
    """Mean over the batch of -log softmax(logits)[label]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -log_softmax[np.arange(len(labels)), labels].mean()


def right(logits, labels, w):
    """`w * (softmax(logits) - onehot) / batch`."""
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    return w * p / len(labels), None


def wrong(logits, labels, w):
    """The mean over the batch is forgotten for the label's own entry."""
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True) * len(labels)
    p[np.arange(len(labels)), labels] -= 1
    return w * p, None


random = np.random.default_rng(0)
logits, labels = random.normal(size=(4, 3)), np.array([0, 2, 1, 1])

CASES = [
    adjudge.Case(adjudge.ByHand(cross_entropy, vjp=right), (logits, labels), name="right"),
    adjudge.Case(adjudge.ByHand(cross_entropy, vjp=wrong), (logits, labels), name="wrong"),
]

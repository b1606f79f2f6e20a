"""Floats of 8 and 16 bits that NumPy does not have, as their bits."""

import numpy as np


def to_bf16(x):
    """Rounds to bfloat16, ties to even, as its 16 bits."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def from_f8(bits, exponent, mantissa):
    """The value of small floats that are neither infinite nor NaN."""
    bits = bits.astype(np.int32)
    sign = np.where(bits & 0x80, -1.0, 1.0)
    scale = (bits >> mantissa) & ((1 << exponent) - 1)
    part = (bits & ((1 << mantissa) - 1)) / (1 << mantissa)
    bias = (1 << (exponent - 1)) - 1
    value = np.where(scale == 0, part * 2.0 ** (1 - bias), (1 + part) * 2.0 ** (scale - bias))
    return (sign * value).astype(np.float32)

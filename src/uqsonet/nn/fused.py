"""Hidden layers of tanh perceptrons in one pass, compiled from `fused.cpp` for a training on a CPU.

Nine tenths of a step's operations are theirs. Written as products and activations in turns, as in
`uqsonet.nn.sigmoid`, they reach half of what a core can do, compiled as one pass four fifths.
Nothing requires a compiler: without one, in float64 and for widths that do not fill a register,
training uses the form of `uqsonet.nn.sigmoid`; results agree to rounding. Whoever only evaluates
networks is not made to wait for a compiler either.

The compiler is `$CXX`, by default `c++`; `UQSONET_COMPILE=0` says not to ask it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

Layers = tuple[Tensor, ...]
"""Weights (inputs, outputs) and biases (outputs,) in turns; or of H perceptrons side by side,
(H, inputs, outputs) and (H, 1, outputs)."""

LOG = logging.getLogger("uqsonet")
SOURCE = Path(__file__).with_suffix(".cpp")
OPTIONS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti")
SECONDS = 120
"""After which a compiler is given up."""


def build(*options: str) -> ctypes.CDLL:
    """Compile and load the library; a second or two, in a folder that is gone afterwards.

    Raises
    ------
    OSError
        If there is no compiler, or the library cannot be loaded.
    subprocess.SubprocessError
        If the compiler refuses, or takes too long.
    """
    compiler = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    with tempfile.TemporaryDirectory(prefix="uqsonet-") as folder:
        path = Path(folder) / "fused.so"
        command = [*compiler, *OPTIONS, *options, str(SOURCE), "-o", str(path)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
        found = ctypes.CDLL(str(path))
    found.saved_values.restype = ctypes.c_int64
    return found


@cache
def _library() -> ctypes.CDLL | None:
    if os.environ.get("UQSONET_COMPILE") == "0":
        LOG.info("training step: torch's operations, UQSONET_COMPILE is 0")
        return None
    start, reason = time.perf_counter(), ""
    for options in (["-march=native"], []):
        try:
            found = build(*options)
        except (OSError, subprocess.SubprocessError) as error:
            reason = (getattr(error, "stderr", None) or str(error)).strip().partition("\n")[0]
        else:
            LOG.info("training step: fused layers, compiled in %.1f s", time.perf_counter() - start)
            return found
    LOG.info("training step: torch's operations, slower than fused layers (%s)", reason)
    return None


_LOCK = Lock()


def library() -> ctypes.CDLL | None:
    """Return the library, compiled once a process, or None if it has to do without."""
    with _LOCK:
        return _library()


def usable(like: Tensor, widths: Sequence[int]) -> bool:
    """Whether layers of these widths can be fused: in float32 on a CPU, with a compiler."""
    if like.dtype != torch.float32 or like.device.type != "cpu" or not widths:
        return False
    found = library()
    return found is not None and all(width % found.lanes() == 0 for width in widths)


class _Shapes(ctypes.Structure):
    """`Shapes` of the source."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("heads", "sets", "sensors", "inputs", "depth")),
        ("own", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("widths", "strides", "tokens", "mask", "score")),
        *((name, ctypes.c_void_p) for name in ("layers", "saved")),
    )


def _address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _addresses(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*[tensor.data_ptr() for tensor in tensors])


def _strides(layers: Sequence[Tensor]) -> ctypes.Array[ctypes.c_int64]:
    """Return the two strides of each weight."""
    return (ctypes.c_int64 * len(layers))(*[n for w in layers[::2] for n in w.stride()[-2:]])


class _Call:
    """One pass through the layers, and the way back; keeps the tensors that it has addresses of."""

    def __init__(
        self,
        tokens: Tensor,
        sensors: int,
        mask: Tensor | None,
        score: Tensor | None,
        layers: Sequence[Tensor],
    ) -> None:
        found = library()
        assert found is not None
        self._library = found
        self.tokens = tokens.contiguous()
        self._mask = None if mask is None else mask.contiguous()
        self._score = None if score is None else score.contiguous()
        one = layers[0].ndim == 2  # heads lie behind one another, weights of one as they like
        self._layers = [
            layer if one and k % 2 == 0 else layer.contiguous() for k, layer in enumerate(layers)
        ]
        weights, heads = self._layers[::2], 1 if one else len(layers[0])
        self._heads = heads if score is None else heads // 2
        self._arrays = (
            (ctypes.c_int32 * len(weights))(*[w.shape[-1] for w in weights]),
            _strides(self._layers),
            _addresses(self._layers),
        )
        widths, strides, addresses = map(ctypes.addressof, self._arrays)
        self._shapes = _Shapes(
            heads=self._heads,
            sets=len(tokens) // sensors,
            sensors=sensors,
            inputs=tokens.shape[1],
            depth=len(weights),
            own=one and layers[1].ndim == 2,
            widths=widths,
            strides=strides,
            tokens=_address(self.tokens),
            mask=_address(self._mask),
            score=_address(self._score),
            layers=addresses,
        )

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return y (heads, sets, width), and what the way back needs."""
        saved = torch.empty(self._library.saved_values(ctypes.byref(self._shapes)))
        y = torch.empty(self._heads, self._shapes.sets, self._layers[-2].shape[-1])
        self._shapes.saved = saved.data_ptr()
        self._library.forward(ctypes.byref(self._shapes), _address(y))
        return y, saved

    def backward(self, saved: Tensor, of_y: Tensor) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """Return the gradients of tokens, score and layers."""
        of_y, of_tokens = of_y.contiguous(), torch.empty_like(self.tokens)
        of_score = None if self._score is None else torch.empty_like(self._score)
        of_layers = [torch.empty_like(layer) for layer in self._layers]
        self._shapes.saved = saved.data_ptr()
        self._library.backward(
            ctypes.byref(self._shapes),
            *map(_address, (of_y, of_tokens, of_score)),
            _addresses(of_layers),
            _strides(of_layers),
        )
        return of_tokens, of_score, of_layers


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        sensors: int,
        mask: Tensor | None,
        score: Tensor | None,
        *layers: Tensor,
    ) -> Tensor:
        ctx.call = _Call(tokens, sensors, mask, score, layers)
        y, saved = ctx.call.forward()
        ctx.save_for_backward(saved)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_tokens, of_score, of_layers = ctx.call.backward(*ctx.saved_tensors, *gradients)
        return of_tokens, None, None, of_score, *of_layers


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *layers: Tensor) -> Tensor:
        *hidden, weight, bias = layers
        ctx.call = _Call(x, 1, None, None, hidden)
        (y,), saved = ctx.call.forward()
        ctx.save_for_backward(saved, y, weight)
        return torch.addmm(bias, y, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        saved, y, weight = ctx.saved_tensors
        (g,) = gradients
        of_x, _, of_layers = ctx.call.backward(saved, g @ weight.T)
        return of_x, *of_layers, (g.T @ y).T, g.sum(0)


def fused_attention(
    tokens: Tensor, sensors: int, mask: Tensor | None, score: Tensor | None, layers: Layers
) -> Tensor:
    """Return the average over the sensors of a set of each head's last hidden layer (H, B, width).

    Parameters
    ----------
    tokens : Tensor, shape (m B, inputs)
        The first sensors of all sets, then the second ones, ...
    sensors : int
        m, sensors of a set.
    mask : Tensor of bool, shape (m, B), or None
    score : Tensor, shape (H, 1, width), or None
        Last layer of w_l; None if m = 1, where there is nothing to weigh.
    layers : Layers
        Hidden layers of w_1 ... w_H (unless there is no score), v_1 ... v_H.
    """
    found = _Attention.apply(tokens, sensors, mask, score, *layers)
    assert isinstance(found, Tensor)
    return found


def fused_perceptron(x: Tensor, layers: Layers) -> Tensor:
    """Map x (k, inputs) to (k, outputs): tanh after each layer but the last.

    The first bias may have a row for each row of x.
    """
    found = _Perceptron.apply(x, *layers)
    assert isinstance(found, Tensor)
    return found

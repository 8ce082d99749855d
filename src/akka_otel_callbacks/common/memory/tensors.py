"""Counts the bytes of a model's, its gradients' and its optimizer's tensors on one device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of the tensors that a process holds on a device between steps."""

    weights: int = 0
    adapter: int = 0
    optimizer: int = 0


class TensorCount:
    """Counts the bytes of a model's and an optimizer's tensors on one device.

    A storage counts once, however many tensors share it. A sharded tensor counts with its local shard, a tensor that
    is made of others (quantized by torchao, for example) with those, a packed one with what it occupies.
    """

    def __init__(self, device: torch.device | None) -> None:
        """Without a device there is nothing to count."""
        self._device = device
        self.watch((), None)

    def watch(self, models: tuple[torch.nn.Module, ...], optimizer: Any) -> None:
        self._models, self._optimizer = models, optimizer
        self._trainable = [p for model in models for p in model.parameters() if p.requires_grad]
        # Megatron keeps gradients in a buffer of its own, of which each parameter has a view.
        self._gradient = "main_grad" if any(hasattr(p, "main_grad") for p in self._trainable) else "grad"
        self._counted: dict[Any, Held] = {}
        self._gradients: dict[int, int] = {0: 0}

    def held(self) -> Held:
        """Weights, adapter and optimizer state. They are counted once for each place that they have been in: which
        device the first parameter and its state are on, and how many parameters have a state."""
        first = next((p for model in self._models for p in model.parameters()), None)
        state = getattr(self._optimizer, "state", None) or {}
        place = (first is not None and first.device, len(state), _devices(next(iter(state.values()), None)))
        if place not in self._counted:
            storages: set[int] = set()
            weights, adapter = self._weights(storages)
            self._counted[place] = Held(weights, adapter, self._bytes(_tensors(list(state.values())), storages))
        return self._counted[place]

    def _weights(self, storages: set[int]) -> tuple[int, int]:
        """Bytes of the weights and of the adapter. In a model with an adapter of PEFT's the trainable parameters are
        the adapter. Otherwise they are weights like the others."""
        adapters: list[torch.Tensor] = []
        others: list[torch.Tensor] = []
        for model in self._models:
            has_adapter = any(hasattr(module, "peft_config") for module in model.modules())
            for parameter in model.parameters():
                (adapters if has_adapter and parameter.requires_grad else others).append(parameter)
            others.extend(model.buffers())
        return self._bytes(others, storages), self._bytes(adapters, storages)

    def gradients(self) -> int:
        """Bytes of the gradients that are there now. If they are as many as at an earlier time, they have the bytes
        that they had then."""
        there = [found for p in self._trainable if (found := getattr(p, self._gradient, None)) is not None]
        if len(there) not in self._gradients:
            self._gradients[len(there)] = self._bytes(there, set())
        return self._gradients[len(there)]

    def _bytes(self, tensors: Iterable[torch.Tensor], storages: set[int]) -> int:
        total = 0
        for tensor in tensors:
            for leaf in _leaves(tensor):
                if leaf.device != self._device:
                    continue
                storage = _storage(leaf)
                if storage is not None and storage._cdata not in storages:
                    storages.add(storage._cdata)
                    total += storage.nbytes()
        return total


def _leaves(tensor: Any) -> Iterator[torch.Tensor]:
    """The plain tensors of which a tensor is made: a DTensor's local shard, a quantized tensor's data and scales."""
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            yield from _leaves(getattr(tensor, name))
    elif hasattr(tensor, "untyped_storage"):  # a DTensor's device mesh is among its names, and no tensor
        yield tensor


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The tensor's storage. None for a sparse tensor, which has none. Its bytes are then in the parts that are counted
    as differences."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def _tensors(state: Any) -> Iterator[torch.Tensor]:
    """The tensors in an optimizer's state, in whatever dictionaries and lists they lie."""
    if hasattr(state, "untyped_storage"):
        yield state
    elif isinstance(state, dict):
        yield from _tensors(list(state.values()))
    elif isinstance(state, (list, tuple)):
        for item in state:
            yield from _tensors(item)


def _devices(state: Any) -> tuple[Any, ...]:
    """The devices on which one parameter's state lies. If they change, the state was moved between host and device."""
    return tuple(tensor.device for tensor in _tensors(state))

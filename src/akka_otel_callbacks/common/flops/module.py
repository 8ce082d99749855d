"""Matmul parameters of a live model: what one token is multiplied with on its way through the language model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from akka_otel_callbacks.common.flops.walk import Place, Uncountable, Walk
from akka_otel_callbacks.common.log import logger

# Architectures that would pass the walk, but whose forward runs a layer not once for each token. Found by measuring
# every causal language model of transformers against the count.
_IRREGULAR = {
    "big_bird": "its pooler does not run",
    "blt": "it runs on patches of tokens",
    "dory": "it runs its layers several times",
    "gemma3n": "its routers run twice in a layer",
    "gemma3n_text": "its routers run twice in a layer",
    "hrm_text": "it runs its layers several times",
    "longcat_flash": "a token may be sent to experts without weights",
    "zamba2": "its shared block has an adapter for each place and runs one",
}


_TOWERS = ("vision_config", "audio_config", "audio_encoder_config", "vq_config")


@dataclass(frozen=True, slots=True)
class MatmulParameters:
    """Parameters that are a factor of a matrix product, active for one token.

    Attributes:
        layers: of the linear layers of the language model.
        head: of its output head.
    """

    layers: int
    head: int

    @property
    def total(self) -> int:
        """All matmul parameters. A token passes through all of them if its logits are computed."""
        return self.layers + self.head


def matmul_parameters(model: Any) -> MatmulParameters | None:
    """Counts the parameters of the language model's linear layers and of its output head, active per token.

    One walk over the modules, which reads shapes only: a model on a GPU, on `meta`, sharded (FSDP2, tensor parallel,
    ZeRO-3) or quantised is counted by its logical shapes, without touching its data. Call it once and keep the result.

    * A linear layer counts `in_features * out_features`; biases, norms and embedding lookups count nothing. A head
      tied to the embedding is a matrix product and counts once.
    * Of routed experts count those that one token is sent to (top-k); the router and a shared expert count in full.
    * A LoRA layer counts its base and the A and B of its active adapters: a token is multiplied with all three. So does
      one of DoRA or AdaLoRA. Of other adapters those count that multiply with no matrix (IA3); the rest are not known.
    * Of a multimodal model only the language model and the head count, not the towers and projectors.

    Args:
        model: a `torch.nn.Module`, as built or wrapped by PEFT, DDP, FSDP2, DeepSpeed or `torch.compile`. FSDP1 hides
            the shapes of its shards: count before wrapping.

    Returns:
        The count, or None, with one log line that gives the reason, where a matrix of the model is of a kind that is
        not known to meet every token once.
    """
    model = _unwrap(model)
    try:
        return _count(model)
    except Uncountable as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - a model may hold any module, and each may lack what its likes have
        reason = f"a part of it is of a make that is not known ({type(error).__name__}: {error})"
    logger.warning("no FLOPs estimate for %s, and so no MFU: %s", type(model).__name__, reason)
    return None


def _count(model: Any) -> MatmulParameters:
    config = getattr(model, "config", None)
    _refuse_irregular(model, config)
    head = _output_head(model)
    language_model = _language_model(model, config)
    return MatmulParameters(
        layers=Walk(config, apart=head).parameters(language_model),
        head=0 if head is None else Walk(config).parameters(Place(head, "output head")),
    )


def _refuse_irregular(model: Any, config: Any) -> None:
    model_type = getattr(config, "model_type", None)
    if model_type in _IRREGULAR:
        raise Uncountable(_IRREGULAR[model_type])
    if getattr(config, "is_encoder_decoder", False):
        raise Uncountable("the two parts of an encoder-decoder see different tokens")
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise Uncountable("prompt learning adds tokens that are not in the batch")
    if any("FullyShardedDataParallel" in type(module).__name__ for module in model.modules()):
        raise Uncountable("FSDP1 hides the shapes of what it shards; count the model before it is wrapped")


def _unwrap(model: Any) -> Any:
    """The model inside DDP and DeepSpeed (`module`) and `torch.compile` (`_orig_mod`)."""
    while list(model._modules) in (["module"], ["_orig_mod"]):
        (model,) = model._modules.values()
    return model


def _output_head(model: Any) -> Any | None:
    get_output_embeddings = getattr(model, "get_output_embeddings", None)
    return get_output_embeddings() if get_output_embeddings else None


def _language_model(model: Any, config: Any) -> Place:
    """The part of a multimodal model that is built from the text section of its configuration."""
    get_text_config = getattr(config, "get_text_config", None)
    text_config = get_text_config() if get_text_config else config
    if text_config is config:
        if any(getattr(config, tower, None) is not None for tower in _TOWERS):
            raise Uncountable("its configuration does not tell the language model from the other parts")
        return Place(model, "")
    found = list(_topmost(Place(model, ""), type(text_config)))
    if len(found) != 1:
        raise Uncountable(f"{len(found)} of its parts, instead of 1, are built from {type(text_config).__name__}")
    return found[0]


def _topmost(place: Place, config_type: type) -> Iterator[Place]:
    for child in place.children():
        if type(getattr(child.module, "config", None)) is config_type:
            yield child
        else:
            yield from _topmost(child, config_type)

"""The count on the live model against torch's own counter over a real forward pass: no difference at all."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="the count walks a torch model")
transformers = pytest.importorskip("transformers", reason="the models are those of transformers")
peft = pytest.importorskip("peft", reason="LoRA is that of peft")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from akka_otel_callbacks.common.flops import MatmulParameters, matmul_parameters, train_flops  # noqa: E402
from tests.common.flops.models import (  # noqa: E402
    BATCH,
    LENGTH,
    MULTIMODAL_MODELS,
    TEXT_MODELS,
    TOKENS,
    batch,
    measure,
    sample,
    tiny_config,
    tiny_model,
)


def build(model_type: str, **settings: Any) -> Any:
    if model_type not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {model_type}")
    return tiny_model(tiny_config(model_type, **settings))


def counted(model: Any) -> MatmulParameters:
    parameters = matmul_parameters(model)
    assert parameters is not None
    return parameters


def trained(model: Any) -> int:
    """FLOPs that torch counts in the linear layers of a forward and backward pass."""
    with FlopCounterMode(display=False) as counter:
        model(input_ids=batch(), labels=batch(), use_cache=False).loss.backward()
    counts = counter.get_flop_counts()["Global"]
    return sum(flops for product, flops in counts.items() if product.__name__ in ("mm", "addmm"))


@pytest.mark.parametrize("model_type", [*TEXT_MODELS, *MULTIMODAL_MODELS])
def test_twice_the_parameters_is_what_a_token_costs_in_linear_layers(model_type: str) -> None:
    _, parameters, measured = sample(model_type)
    assert parameters is not None
    assert 2 * parameters.total * TOKENS == measured.linear


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "qwen3_moe", "gemma3_text", "deepseek_v3"])
def test_the_backward_pass_of_a_full_fine_tune_makes_it_three_times_as_much(model_type: str) -> None:
    model = build(model_type)
    assert trained(model) == train_flops(counted(model), TOKENS)


def test_the_head_meets_only_the_tokens_whose_logits_are_kept() -> None:
    model, kept = build("llama"), 5
    parameters = counted(model)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=batch(), logits_to_keep=kept, use_cache=False)
    linear = {product.__name__: flops for product, flops in counter.get_flop_counts()["Global"].items()}["mm"]
    assert linear == 2 * (parameters.layers * TOKENS + parameters.head * BATCH * kept)


def test_a_tied_head_counts_once_and_the_embedding_not_at_all() -> None:
    tied, untied = build("llama", tie_word_embeddings=True), build("llama", tie_word_embeddings=False)
    assert tied.lm_head.weight is tied.get_input_embeddings().weight
    assert counted(tied) == counted(untied)
    assert counted(tied).head == tied.config.vocab_size * tied.config.hidden_size
    without_vectors = sum(weight.numel() for weight in tied.parameters() if weight.ndim == 2)
    assert counted(tied).total == without_vectors
    assert counted(untied).total == sum(weight.numel() for weight in untied.parameters() if weight.ndim == 2) - (
        untied.config.vocab_size * untied.config.hidden_size
    )


# Mixtures of experts


def test_of_routed_experts_those_count_that_a_token_is_sent_to() -> None:
    one, two = build("mixtral", num_experts_per_tok=1), build("mixtral", num_experts_per_tok=2)
    config = two.config
    expert = 3 * config.hidden_size * config.intermediate_size
    assert counted(two).layers - counted(one).layers == config.num_hidden_layers * expert


def test_the_number_of_experts_met_is_not_a_sampling_parameter() -> None:
    model = build("aria_text", moe_num_experts=6, moe_topk=2, top_k=50)
    assert 2 * counted(model).total * TOKENS == measure(model).linear


def test_experts_without_a_known_number_met_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    experts = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
    model = torch.nn.ModuleDict({"experts": experts})
    assert matmul_parameters(model) is None
    assert "how many of its experts" in caplog.text


# LoRA

LORA = {"r": 4, "target_modules": "all-linear"}


def lora(model_type: str, settings: dict[str, Any] = {}, **lora_settings: Any) -> Any:  # noqa: B006
    config = peft.LoraConfig(task_type="CAUSAL_LM", **{**LORA, **lora_settings})
    return peft.get_peft_model(build(model_type, **settings), config)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "phi3", "gemma2", "qwen2_vl"])
def test_lora_counts_the_base_and_both_halves_of_the_adapter(model_type: str) -> None:
    model = lora(model_type)
    assert 2 * counted(model).total * TOKENS == measure(model).linear
    assert counted(model).total > counted(build(model_type)).total


def test_a_lora_update_costs_nearer_four_flops_per_parameter_than_the_six_of_its_definition() -> None:
    model = lora("llama", r=1, target_modules=["q_proj", "v_proj"])
    assert trained(model) / (counted(model).total * TOKENS) == pytest.approx(4, abs=0.2)


def test_lora_on_the_embedding_looks_up_one_half() -> None:
    model = lora("llama", target_modules=["embed_tokens", "q_proj"])
    assert 2 * counted(model).total * TOKENS == measure(model).linear


def test_only_the_adapter_in_use_counts() -> None:
    model = lora("llama")
    alone = counted(model)
    model.add_adapter("other", peft.LoraConfig(task_type="CAUSAL_LM", **{**LORA, "r": 8}))
    assert counted(model) == alone
    model.set_adapter("other")
    assert 2 * counted(model).total * TOKENS == measure(model).linear
    with model.disable_adapter():
        assert counted(model) == counted(build("llama"))
    model.merge_adapter()
    assert 2 * counted(model).total * TOKENS == measure(model).linear
    assert counted(model) == counted(build("llama"))


def test_a_layer_that_is_trained_in_full_beside_lora_counts_once() -> None:
    model = lora("llama", modules_to_save=["lm_head"], target_modules=["q_proj", "v_proj"])
    assert 2 * counted(model).total * TOKENS == measure(model).linear
    assert counted(model).head == counted(build("llama")).head


def test_single_tokens_trained_beside_lora_cost_nothing_more() -> None:
    model = lora("llama", trainable_token_indices=[3, 4], target_modules=["q_proj"])
    assert 2 * counted(model).total * TOKENS == measure(model).linear


def test_lora_on_batched_experts_costs_per_pass_and_not_per_token() -> None:
    """PEFT adds the product of A and B to the experts' and the router's weights before a token meets them."""
    model = lora("qwen3_moe", {"decoder_sparse_step": 1, "mlp_only_layers": []})
    if not any(hasattr(module, "parameter_name") for module in model.modules()):
        pytest.skip("this version of transformers has experts that are modules, adapted like any other layer")
    per_token = (measure(model, 2 * LENGTH).linear - measure(model, LENGTH).linear) / TOKENS
    assert 2 * counted(model).total == per_token


ONE = ["q_proj", "down_proj"]


@pytest.mark.parametrize(
    "adapter",
    [
        pytest.param(lambda: peft.AdaLoraConfig(init_r=5, target_r=3, total_step=9, target_modules=ONE), id="AdaLoRA"),
        pytest.param(lambda: peft.LoraConfig(r=4, use_dora=True, target_modules=ONE), id="DoRA"),
        pytest.param(lambda: peft.IA3Config(target_modules=ONE, feedforward_modules=["down_proj"]), id="IA3"),
        pytest.param(lambda: peft.LNTuningConfig(target_modules=["input_layernorm"]), id="norms"),
    ],
)
def test_other_adapters_of_known_cost_count(adapter: Callable[[], Any]) -> None:
    model = peft.get_peft_model(build("llama"), adapter())
    per_token = (measure(model, 2 * LENGTH).linear - measure(model, LENGTH).linear) / TOKENS
    assert 2 * counted(model).total == per_token


def test_an_adapter_of_another_make_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    class Adapted(torch.nn.Module):
        def __init__(self, base_layer: Any) -> None:
            super().__init__()
            self.base_layer, self.lora_A = base_layer, 3

    model = build("llama")
    model.model.layers[0].self_attn.q_proj = Adapted(model.model.layers[0].self_attn.q_proj)
    assert matmul_parameters(model) is None
    (line,) = caplog.records
    assert "no FLOPs estimate" in line.getMessage()
    assert line.exc_info is None


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        (lambda: peft.VeraConfig(r=4, target_modules=["q_proj"]), "not LoRA"),
        (lambda: peft.LoHaConfig(r=4, target_modules=["q_proj"]), "not LoRA"),
        (lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), "adds tokens"),
        (lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), "adds tokens"),
    ],
)
def test_another_adapter_is_not_counted(
    adapter: Callable[[], Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert matmul_parameters(peft.get_peft_model(build("llama"), adapter())) is None
    assert reason in caplog.text


# Quantised layers, by the shape that they stand for


class Linear4bit(torch.nn.Linear):
    """As bitsandbytes' layer after its weights were packed: two of them in a byte, the shape in the quant state."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        packed = torch.zeros(in_features * out_features // 2, 1, dtype=torch.uint8)
        self.weight = torch.nn.Parameter(packed, requires_grad=False)
        self.weight.quant_state = type("QuantState", (), {"shape": torch.Size((out_features, in_features))})()


class Linear8bitLt(torch.nn.Linear):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.weight = torch.nn.Parameter(torch.zeros(out_features, in_features, dtype=torch.int8), requires_grad=False)


class TorchQuantLinear(torch.nn.Module):
    """As GPTQModel's layer: packed weights, their scales and zeros as buffers."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("qweight", torch.zeros(in_features // 8, out_features, dtype=torch.int32))
        self.register_buffer("scales", torch.zeros(in_features // 4, out_features))


class QuantLinear(TorchQuantLinear):
    """As AutoGPTQ's layer, which spells the sizes in one word."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.infeatures, self.outfeatures = self.__dict__.pop("in_features"), self.__dict__.pop("out_features")


class WQLinear_GEMM(TorchQuantLinear):
    """As AutoAWQ's layer."""


@pytest.mark.parametrize("layer", [Linear4bit, Linear8bitLt, TorchQuantLinear, QuantLinear, WQLinear_GEMM])
def test_a_quantised_layer_counts_by_the_shape_that_it_stands_for(layer: type[Any]) -> None:
    model = build("llama")
    before = counted(model)
    for block in model.model.layers:
        for holder, name in ((block.self_attn, "q_proj"), (block.mlp, "down_proj")):
            plain = getattr(holder, name)
            setattr(holder, name, layer(plain.in_features, plain.out_features))
    assert counted(model) == before


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
def test_the_packed_layer_of_bitsandbytes_counts_by_the_shape_that_it_stands_for() -> None:
    import bitsandbytes

    packed = bitsandbytes.nn.Linear4bit(64, 128, bias=False)
    packed.load_state_dict(torch.nn.Linear(64, 128, bias=False).state_dict())
    packed.to("cpu")  # packs
    assert packed.weight.numel() == 64 * 128 / 2
    assert counted(packed) == MatmulParameters(layers=64 * 128, head=0)


def test_a_quantised_layer_that_does_not_say_its_size_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    layer = type("MysteryQuantLinear", (torch.nn.Module,), {})()
    layer.register_buffer("packed", torch.zeros(8, 8, dtype=torch.uint8))
    assert matmul_parameters(torch.nn.Sequential(layer)) is None
    assert "0 is a MysteryQuantLinear, which does not say its features" in caplog.text


# Wrappers


@pytest.fixture
def process_group() -> Iterator[None]:
    """Two ranks, of which this process is the first and the other does not exist."""
    import torch.distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def test_a_compiled_model_counts_as_it_is() -> None:
    model = build("llama")
    assert counted(torch.compile(model)) == counted(model)


def test_a_model_under_ddp_counts_as_it_is(process_group: None) -> None:
    model = build("llama")
    assert counted(torch.nn.parallel.DistributedDataParallel(model)) == counted(model)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "qwen3_moe"])
def test_a_model_sharded_by_fsdp2_counts_by_its_whole_weights(process_group: None, model_type: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, before = build(model_type), counted(build(model_type))
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.base_model.h if model_type == "gpt2" else model.base_model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    weight = next(model.base_model.parameters())
    assert weight.to_local().numel() < weight.numel()
    assert counted(model) == before


def test_a_model_partitioned_by_zero_3_counts_by_its_whole_weights() -> None:
    model = build("qwen3_moe")
    before = counted(model)
    for weight in model.parameters():
        weight.ds_shape = weight.shape
        weight.data = torch.empty(0)
    assert counted(model) == before


def test_a_model_on_no_device_counts_too() -> None:
    with torch.device("meta"):
        on_meta = build("qwen3_moe")
    assert counted(on_meta) == counted(build("qwen3_moe"))


# What is not counted is said


class FullyShardedDataParallel(torch.nn.Module):
    """As FSDP1: the wrapped module's weights are views of a flat shard."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self._fsdp_wrapped_module = module


def two_uses_of_one_layer() -> Any:
    layer = torch.nn.Linear(4, 4)
    return torch.nn.Sequential(layer, layer)


def towers_in_a_flat_configuration() -> Any:
    """As Phi-4 multimodal: the configuration is that of the language model, and holds those of the towers."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    model.config = transformers.LlamaConfig(vision_config=transformers.CLIPVisionConfig())
    return model


class OwnMatrix(torch.nn.Module):
    def __init__(self, name: str, *shape: int) -> None:
        super().__init__()
        self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape)))


def patched_linear() -> Any:
    layer = torch.nn.Linear(4, 4)
    layer.weight = torch.nn.Parameter(torch.zeros(4, 2))
    return torch.nn.Sequential(layer)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: torch.nn.Sequential(OwnMatrix("kernel", 4, 4)), "0.kernel, a matrix of shape (4, 4)"),
        (lambda: torch.nn.Sequential(OwnMatrix("scales", 2, 4, 4)), "0.scales, a weight of shape (2, 4, 4)"),
        (lambda: torch.nn.Sequential(torch.nn.Bilinear(4, 4, 4)), "nothing says how many of its experts"),
        (lambda: torch.nn.Sequential(torch.nn.Conv1d(4, 4, 3)), "a convolution over channels"),
        (lambda: torch.nn.ModuleDict({"encoder_attn": torch.nn.Linear(4, 4)}), "something else than the batch's"),
        (two_uses_of_one_layer, "1 stands in the model twice"),
        (patched_linear, "16 parameters by its features, but a weight of (4, 2)"),
        (towers_in_a_flat_configuration, "does not tell the language model from the other parts"),
        (lambda: FullyShardedDataParallel(torch.nn.Linear(4, 4)), "FSDP1 hides the shapes"),
    ],
)
def test_a_part_of_no_known_kind_leaves_no_count_but_its_name(
    model: Callable[[], Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert matmul_parameters(model()) is None
    assert len(caplog.records) == 1
    assert reason in caplog.text


@pytest.mark.parametrize("model_type", ["t5", "bart", "gemma3n_text"])
def test_an_architecture_whose_tokens_do_not_meet_every_layer_once_is_not_counted(
    model_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = transformers.CONFIG_MAPPING[model_type]()
    auto = transformers.AutoModelForSeq2SeqLM if model_type in ("t5", "bart") else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(config)
    assert matmul_parameters(model) is None
    assert "no FLOPs estimate" in caplog.text


def test_a_depthwise_convolution_and_vectors_cost_nothing() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Conv1d(8, 8, 3, groups=8))
    assert counted(model) == MatmulParameters(layers=32, head=0)

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.flops import peaks
from akka_otel_callbacks.common.flops.peaks import PEAKS, dense_bf16_peak, total_peak

# Names as drivers give them, with the figure of the vendor's datasheet in TFLOP/s.
KNOWN = {
    "NVIDIA A10": 125,
    "NVIDIA A10G": 70,
    "NVIDIA A30": 165,
    "NVIDIA A40": 149.7,
    "NVIDIA A100-SXM4-40GB": 312,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA A100-PCIE-40GB": 312,
    "NVIDIA A100 80GB PCIe": 312,
    "NVIDIA RTX A4000": 76.7,
    "NVIDIA RTX A6000": 154.85,
    "NVIDIA RTX 6000 Ada Generation": 364.25,
    "NVIDIA GeForce RTX 4090": 165.2,
    "NVIDIA L4": 121,
    "NVIDIA L40": 181.05,
    "NVIDIA L40S": 362.05,
    "NVIDIA H20": 148,
    "NVIDIA H100 80GB HBM3": 989.4,
    "NVIDIA H100 PCIe": 756.5,
    "NVIDIA H100 NVL": 835.5,
    "NVIDIA H200": 989.4,
    "NVIDIA H200 NVL": 835.5,
    "NVIDIA GH200 480GB": 989.4,
    "NVIDIA GH200 144G HBM3e": 989.4,
    "NVIDIA B200": 2250,
    "NVIDIA B300 SXM6 AC": 2250,
    "NVIDIA GB200": 2500,
    "NVIDIA GB300": 2500,
    "Tesla T4": 65,
    "Tesla V100-SXM2-16GB": 125,
    "Tesla V100-PCIE-32GB": 112,
    "AMD Instinct MI250X": 191.5,
    "AMD Instinct MI300X": 1307.4,
    "AMD Instinct MI325X": 1307.4,
    "AMD Instinct MI350X": 2306.9,
    "AMD Instinct MI355X": 2516.6,
}

# Names that another one is part of, slices and limited variants of a known device, and what is no accelerator.
UNKNOWN = [
    "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    "NVIDIA A100-SXM-64GB",  # a custom chip with another number of cores
    "NVIDIA H100 64GB HBM2",
    "GRID A100-10C",
    "NVIDIA A40-48Q",
    "NVIDIA A4000",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA RTX A4000 Laptop GPU",
    "Quadro RTX 6000",
    "NVIDIA H400",
    "NVIDIA",
    "AMD Radeon Graphics",
    "Intel(R) Data Center GPU Max 1550",
    "cpu",
    "",
]


@pytest.mark.parametrize(("name", "tflops"), KNOWN.items())
def test_a_known_device_has_the_peak_of_its_datasheet(name: str, tflops: float) -> None:
    assert dense_bf16_peak(name) == pytest.approx(tflops * 1e12)


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_the_whole_name_of_a_known_device_has_no_peak(name: str) -> None:
    assert dense_bf16_peak(name) is None


def test_a_device_is_not_another_one_whose_name_it_contains() -> None:
    for name, longer in [("NVIDIA A40", "NVIDIA RTX A4000"), ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe")]:
        assert dense_bf16_peak(name) != dense_bf16_peak(longer)


def test_vendor_and_case_do_not_matter() -> None:
    assert dense_bf16_peak("nvidia h100 pcie") == dense_bf16_peak("H100 PCIe") == dense_bf16_peak("NVIDIA H100 PCIe")


def test_every_device_names_its_source_and_half_of_the_sparse_figure_is_not_exceeded() -> None:
    fastest = 2516.6  # of the devices known here; a larger figure would be one with sparsity or of fp8
    for model, peak in PEAKS.items():
        assert peak.source
        assert 10 < peak.tflops <= fastest, model
        assert model == peaks._model(model), f"{model} is never looked up"


def test_devices_without_bf16_units_say_so() -> None:
    assert {model for model, peak in PEAKS.items() if peak.precision == "fp16"} == {
        "t4",
        "v100 sxm2",
        "v100 pcie",
        "v100s pcie",
    }


def test_an_unknown_device_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    name = "NVIDIA Z9 of the test that counts lines"
    with caplog.at_level(logging.WARNING):
        assert [dense_bf16_peak(name), dense_bf16_peak(name)] == [None, None]
    assert [name in record.getMessage() and "peak_flops=" in record.getMessage() for record in caplog.records] == [True]


def test_several_devices_have_the_sum_of_their_peaks() -> None:
    assert total_peak(["NVIDIA A30", "NVIDIA A40"]) == pytest.approx(314.7e12)


@pytest.mark.parametrize("names", [[], ["NVIDIA H400"], ["NVIDIA A30", "NVIDIA H400"]])
def test_there_is_no_total_without_devices_or_with_an_unknown_one(names: list[str]) -> None:
    assert total_peak(names) is None


@given(st.text(max_size=60))
def test_any_name_is_answered(name: str) -> None:
    peak = dense_bf16_peak(name)
    assert peak is None or peak in {known.tflops * 1e12 for known in PEAKS.values()}

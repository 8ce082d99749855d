"""What a model is called: `org/name`, or the last part of where it lies, and never what else stands in its place."""

from __future__ import annotations

import string
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from akka_otel_callbacks.common.run.model_name import model_name

CACHE = "/home/me/.cache/huggingface/hub"


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("gpt2", "gpt2"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"),
        ("/data/models/Qwen3", "Qwen3"),
        ("/data/models/Qwen3//", "Qwen3"),
        ("/data/models/Qwen3/.", "Qwen3"),
        ("./runs/checkpoint-500", "checkpoint-500"),
        ("../Qwen3", "Qwen3"),
        ("runs/today/checkpoint-500", "checkpoint-500"),
        ("models/Qwen3/", "Qwen3"),
        ("~/models/Qwen3", "Qwen3"),
        ("~me/Qwen3", "Qwen3"),
        (r"C:\Users\me\Qwen3", "Qwen3"),
        ("C:/Users/me/Qwen3/", "Qwen3"),
        (r"\\server\share\Qwen3", "Qwen3"),
        (r"models\Qwen3", "Qwen3"),
        ("file:///home/me/Qwen3", "Qwen3"),
        ("hdfs://namenode:8020/user/me/Qwen3", "Qwen3"),
        ("s3://bucket/models/Qwen3?X-Amz-Signature=abc/def&X-Amz-Credential=AKIA", "Qwen3"),
        ("s3://bucket/models/Qwen3/?X-Amz-Signature=abc", "Qwen3"),
        ("https://me:token@models.example/v1/Qwen3#part", "Qwen3"),
        ("https://models.example/v1/Qwen%203%3Fsig=1", "Qwen 3"),
        ("https://huggingface.co/Qwen/Qwen3", "Qwen/Qwen3"),
        ("https://me:hf_token@huggingface.co/Qwen/Qwen3/resolve/main/model.safetensors?sig=1", "Qwen/Qwen3"),
        ("hf://Qwen/Qwen3@main", "Qwen/Qwen3"),
        (f"{CACHE}/models--Qwen--Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca", "Qwen/Qwen3-0.6B"),
        (f"{CACHE}/models--gpt2/snapshots/c1899de289a04d12100db370d81485cdf75e47ca/", "gpt2"),
        (r"D:\cache\models--Qwen--Qwen3\snapshots\c1899de2", "Qwen/Qwen3"),
        (Path("/data/models/Qwen3"), "Qwen3"),
        ("/models/hf_llama_2", "hf_llama_2"),
        ("user:token@models.example/Qwen3", "Qwen3"),
        # What says no name, or might be no name.
        ("https://me:token@models.example", None),
        ("https://me:to/ken@models.example", None),
        ("https://[bad/Qwen3", None),
        ("token@models.example", None),
        ("hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567", None),
        ("/", None),
        ("..", None),
        ("~", None),
        ("C:\\", None),
        ("", None),
        (" ", None),
        (None, None),
        (b"/data/Qwen3", None),
        (5, None),
        ({"path": "Qwen3"}, None),
    ],
)
def test_names(raw: object, name: str | None) -> None:
    assert model_name(raw) == name


def test_a_folder_of_two_parts_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "checkpoint-5").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert model_name("runs/checkpoint-5") == "checkpoint-5"
    assert model_name("runs/checkpoint-6") == "runs/checkpoint-6", "as the hub would be asked for it"


PART = st.text(string.ascii_letters + string.digits + "._", min_size=1, max_size=12).filter(
    lambda part: part.strip(".") and part != "hf"
)
SECRET = st.text(string.ascii_letters + string.digits + "+/=@:?#&%!", min_size=8, max_size=24)
PLACES = (
    "https://me:{secret}@models.example/{folder}/{name}",
    "https://{secret}@models.example/{folder}/{name}/",
    "s3://{folder}/{name}?X-Amz-Signature={secret}",
    "hdfs://host:8020/{folder}/{name}#{secret}",
    "https://models.example/{name}?token={secret}&x=1",
    "abfss://{secret}@account.example/{folder}/{name}",
)


@given(st.sampled_from(PLACES), PART, PART, SECRET, st.booleans())
def test_no_secret_of_a_url_is_part_of_a_name(place: str, folder: str, name: str, secret: str, quoted: bool) -> None:
    assume(secret not in name)
    found = model_name(place.format(folder=folder, name=name, secret=quote(secret, safe="") if quoted else secret))
    assert found in (name, None)
    if quoted:
        assert found == name


@given(st.text(max_size=40) | st.lists(PART, min_size=1).map("/".join) | st.lists(PART, min_size=1).map("\\".join))
def test_a_name_has_two_parts_at_most(raw: str) -> None:
    name = model_name(raw)
    assert name is None or (name.count("/") <= 1 and "\\" not in name and name.isprintable() and "@" not in name)

"""`akka-otel doctor`: what it says of the environment, and what it never says."""

from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

import akka_otel_callbacks
from akka_otel_callbacks.cli import app, doctor
from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml, FakeNvmlError
from akka_otel_callbacks.common.gpu.nvml import Code, Nvml
from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import otlp_sink, refusing, replying


@pytest.fixture(autouse=True)
def _empty_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def _doctor(monkeypatch: pytest.MonkeyPatch, **environ: str) -> Result:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return CliRunner().invoke(app, ["doctor"])


def _row(result: Result, *starts: str) -> str:
    return next(line for line in result.stdout.splitlines() if line.split()[: len(starts)] == list(starts))


def test_the_embedded_default(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _doctor(monkeypatch, AKKA_OTEL_DIR="figures")
    assert result.exit_code == 0
    row = _row(result, "✓", "metrics")
    assert "file figures/metrics.jsonl" in row
    assert "no exporter and no OTLP endpoint is configured" in row
    assert "file figures/traces.jsonl" in _row(result, "✓", "traces")


def test_our_own_version_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert akka_otel_callbacks.__version__ in _row(_doctor(monkeypatch), "·", "akka-otel-callbacks")


def test_a_collector_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with otlp_sink() as sink:
        result = _doctor(monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT=sink.http)
    assert result.exit_code == 0
    assert f"otlp http/protobuf {sink.http}/v1/metrics" in _row(result, "✓", "metrics")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is set" in _row(result, "✓", "metrics")
    assert result.stdout.count("accepted an empty export") == 2


def test_a_collector_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing() as url:
        result = _doctor(monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT=url)
    assert result.exit_code == 1
    assert _row(result, "✗", "metrics")
    assert "Connection refused" in result.stdout


def test_a_wrong_value_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _doctor(monkeypatch, OTEL_METRICS_EXPORTER="promtheus")
    assert result.exit_code == 1
    assert "promtheus" in _row(result, "✗", "warning")


@pytest.mark.parametrize(
    ("environ", "reason"),
    [({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED"), ({"OTEL_METRICS_EXPORTER": "none"}, "none")],
)
def test_nothing_exported_is_said_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], reason: str
) -> None:
    result = _doctor(monkeypatch, **environ)
    assert result.exit_code == 0
    assert reason in _row(result, "·", "metrics", "not", "exported")


def test_engines_are_found_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"trl": "0.22.1", "transformers": "4.40.0", "torch": "2.13.0+cpu", "verl": "0.9.1.dev0"}
    monkeypatch.setattr(doctor, "_version", found.get)
    result = _doctor(monkeypatch)
    assert "supported with fewer figures: 0.24 or newer has them all" in _row(result, "✓", "trl", "0.22.1")
    assert "not supported: 4.57 or newer is" in _row(result, "✗", "transformers", "4.40.0")
    assert _row(result, "✓", "torch", "2.13.0+cpu", "supported")
    assert _row(result, "✓", "verl", "0.9.1.dev0", "supported")
    assert _row(result, "·", "ray", "not", "installed")


def test_the_installed_engine_is_the_one_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    trl = pytest.importorskip("trl", reason="needs TRL installed")
    assert _row(_doctor(monkeypatch), "✓", "trl", trl.__version__)


def test_the_identity_is_the_one_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _doctor(
        monkeypatch,
        OTEL_SERVICE_NAME="my-job",
        OTEL_RESOURCE_ATTRIBUTES=f"{names.ATTR_RUN_ID.name}=run-9,team=research",
    )
    assert _row(result, names.ATTR_RUN_ID.name).split()[1] == "run-9"
    assert _row(result, "service.name").split()[1] == "my-job"
    assert _row(result, "team").split()[1] == "research"


def test_no_secret_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing() as url:
        result = _doctor(
            monkeypatch,
            OTEL_EXPORTER_OTLP_ENDPOINT=url.replace("//", "//me:S3CRETpw@")
            + "/otlp/S3CRETpath0123456789/?k=S3CRETquery",
            OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20S3CREThdr,x-scope=S3CRETscope",
            OTEL_RESOURCE_ATTRIBUTES="api_key=S3CRETattr,note=hf_S3CRETnote,repo=https://u:S3CRETrepo@git.example/x",
        )
    assert "S3CRET" not in result.output
    assert "authorization=***, x-scope=***" in result.stdout
    assert "https://***@git.example/x" in result.stdout


def test_torch_is_not_imported() -> None:
    code = (
        "import sys; from akka_otel_callbacks.cli import app\n"
        "try: app(['doctor'])\n"
        "except SystemExit: pass\n"
        "print('loaded:', [m for m in ('torch', 'transformers', 'trl', 'ray', 'verl') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_collector_that_rejects_is_no_tick(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    with otlp_sink() as sink:
        sink.rejected = (3, "the tenant's quota is used up")
        url = sink.grpc if protocol == "grpc" else sink.http
        result = _doctor(monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
    assert result.exit_code == 1
    for signal in ("metrics", "traces"):
        assert _row(result, "✗", signal)
    assert "quota is used up" in " ".join(result.stdout.split())


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_no_tick_and_names_the_location(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    def redirect(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("location", f"https://ingress.example{request.path}")
        request.send_header("content-length", "0")
        request.end_headers()

    with replying(redirect) as url:
        result = _doctor(monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT=url)
    assert result.exit_code == 1
    assert "https://ingress.example/v1/metrics" in result.stdout
    assert "https://ingress.example/v1/traces" in result.stdout


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4318"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "  "},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": '"http://127.0.0.1:4318"'},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318\n"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "file:///tmp/x"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:99999"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "unix:///run/x.sock"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
        {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization: Bearer S3CRET"},
    ],
)
def test_one_wrong_value_is_one_warning_and_the_files(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    result = _doctor(monkeypatch, **environ)
    assert result.exit_code == 1
    assert sum(line.split()[:2] == ["✗", "warning"] for line in result.stdout.splitlines()) == 1
    assert _row(result, "✓", "metrics", "file")
    assert "S3CRET" not in result.output


@pytest.mark.parametrize(
    "headers",
    [
        "Authorization: Bearer S3CRETtoken",
        "S3CRETtoken",
        '"authorization=S3CRETtoken"',
        "authorization='S3CRETtoken",
        "S3CRETtoken==",
    ],
)
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("signal", ["", "METRICS_", "TRACES_"])
def test_headers_that_cannot_be_used_are_a_warning_that_does_not_show_them(
    monkeypatch: pytest.MonkeyPatch, headers: str, protocol: str, signal: str
) -> None:
    with otlp_sink() as sink:
        url = sink.grpc if protocol == "grpc" else sink.http
        result = _doctor(
            monkeypatch,
            OTEL_EXPORTER_OTLP_ENDPOINT=url,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            **{f"OTEL_EXPORTER_OTLP_{signal}HEADERS": headers},
        )
    assert result.exit_code == 1
    assert "S3CRETtoken" not in result.output
    assert f"OTEL_EXPORTER_OTLP_{signal}HEADERS" in _row(result, "✗", "warning")


def test_an_address_on_ipv6_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("::", "[::1]", "no.such.host.invalid", "a" * 300):
        result = _doctor(
            monkeypatch,
            OTEL_METRICS_EXPORTER="prometheus",
            OTEL_EXPORTER_PROMETHEUS_HOST=host,
            OTEL_EXPORTER_PROMETHEUS_PORT="0",
        )
        assert result.exit_code in (0, 1)
        assert isinstance(result.exception, (SystemExit, type(None)))


@pytest.mark.parametrize("directory", ["x" * 5000, "/dev/null"])
def test_a_folder_that_cannot_be_is_no_traceback(monkeypatch: pytest.MonkeyPatch, directory: str) -> None:
    result = _doctor(monkeypatch, AKKA_OTEL_DIR=directory)
    assert result.exit_code == 1
    assert _row(result, "✗", "metrics")


def test_a_working_folder_that_is_gone_is_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = _doctor(monkeypatch)
    assert result.exit_code == 1
    assert _row(result, "✗", "metrics")


def test_no_text_of_the_environment_commands_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _doctor(
        monkeypatch,
        OTEL_RESOURCE_ATTRIBUTES="team=%1b[2J%9b31m%0d,x%07=y",
        OTEL_METRICS_EXPORTER="a\x1b[2Jb",
        AKKA_OTEL_DIR="fol\x1b[1Ader",
    )
    assert not {"\x1b", "\x9b", "\r", "\x07"} & set(result.output)
    assert result.exit_code == 1


@pytest.mark.parametrize("broken", ["identify", "select", "probe", "gpus"])
def test_what_nobody_thought_of_is_a_line(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("out of the blue")

    monkeypatch.setattr(doctor, broken, fail)
    result = _doctor(monkeypatch)
    assert result.exit_code == 1
    assert result.stderr == "What follows could not be found out. ZeroDivisionError: out of the blue\n"


def test_a_package_that_is_badly_installed_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> str:
        raise KeyError("Version")

    monkeypatch.setattr(doctor, "version", fail)
    assert _row(_doctor(monkeypatch), "·", "trl", "not", "installed")


@pytest.mark.parametrize(("value", "off"), [("1", True), ("0", False)])
def test_the_switches_are_told(monkeypatch: pytest.MonkeyPatch, value: str, off: bool) -> None:
    result = _doctor(monkeypatch, AKKA_OTEL_DISABLE=value, AKKA_OTEL_GPU_DISABLE=value)
    assert ("AKKA_OTEL_DISABLE is set" in _row(result, "·" if off else "✓", "metrics")) is off
    assert ("AKKA_OTEL_GPU_DISABLE is set: all GPU figures are absent" in result.stdout) is off
    assert result.exit_code == 0


# -- GPUs


class Broken:
    """An NVML that answers everything with one code."""

    def __init__(self, code: int) -> None:
        self._code = code

    def __getattr__(self, name: str) -> object:
        def fail(*_: object) -> None:
            raise FakeNvmlError(self._code)

        return fail


def _gpus(monkeypatch: pytest.MonkeyPatch, backend: object) -> Result:
    monkeypatch.setattr("akka_otel_callbacks.cli.gpus.Nvml", lambda: Nvml(backend))
    return _doctor(monkeypatch)


@pytest.mark.parametrize("code", [Code.NO_PERMISSION, Code.FUNCTION_NOT_FOUND, Code.UNKNOWN, Code.TIMEOUT])
def test_where_nvml_does_not_start_all_gpu_figures_are_absent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: Code
) -> None:
    result = _gpus(monkeypatch, Broken(code))
    assert "all GPU figures are absent: NVML does not start (nvmlInit: fake NVML: " in _flat(result)
    assert _row(result, "✗", "GPUs")
    assert "some GPU figures" not in result.output + caplog.text
    assert caplog.records == [], "the row says it"


@pytest.mark.parametrize("code", [Code.LIBRARY_NOT_FOUND, Code.DRIVER_NOT_LOADED])
def test_a_machine_without_a_gpu_is_healthy(monkeypatch: pytest.MonkeyPatch, code: Code) -> None:
    result = _gpus(monkeypatch, Broken(code))
    assert "GPU figures are" in _row(result, "·", "GPUs")
    assert result.exit_code == 0


def test_gpus_are_counted_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = FakeNvml(FakeGpu(uuid="GPU-a"))
    assert "1 × NVIDIA H100 80GB HBM3" in _row(_gpus(monkeypatch, driver), "✓", "GPUs")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "this process sees no GPU" in _flat(_gpus(monkeypatch, driver))


def test_a_driver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("akka_otel_callbacks.cli.gpus.PATIENCE_S", 0.1)
    over = threading.Event()
    backend = SimpleNamespace(nvmlInit=over.wait)
    try:
        assert "all GPU figures are absent: NVML gave no answer" in _flat(_gpus(monkeypatch, backend))
    finally:
        over.set()


def _flat(result: Result) -> str:
    return " ".join(result.stdout.split())

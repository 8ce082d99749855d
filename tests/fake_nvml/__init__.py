"""A scripted libnvidia-ml.so.1, so that the real nvidia-ml-py is tested without a GPU."""

from tests.fake_nvml.driver import FakeDriver, Gpu, build, load

__all__ = ["FakeDriver", "Gpu", "build", "load"]

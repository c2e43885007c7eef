"""A repeated write takes no new pages from the kernel when malloc keeps freed memory."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spanloop.collector.server import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit(3)
request = ExportTraceServiceRequest()
spans = request.resource_spans.add().scope_spans.add().spans
for _ in range(512):
    spans.add().attributes.add(key="k").value.string_value = "x" * 3_000
def write():
    return len(request.SerializeToString())
write(), write(), write()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    write()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""


def faults(mode: str) -> float:
    """Pages for each of 20 writings of 1.5 MB."""
    completed = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=False)
    if completed.returncode == 3:
        pytest.skip("this C library has no mallopt")
    assert completed.returncode == 0, completed.stderr
    return float(completed.stdout)


def test_a_repeated_write_takes_no_new_pages() -> None:
    assert faults("keep") < 100

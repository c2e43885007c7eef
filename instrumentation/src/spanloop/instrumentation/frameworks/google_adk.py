import os
from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode
from wrapt import wrap_function_wrapper
def set_up(module):
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    os.environ.setdefault("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")

def instrument(module):
    wrap_function_wrapper(module, "PluginManager.run_on_tool_error_callback", _on_error)

async def _on_error(run, _, args, named):
    error = named.get("error")
    span = trace.get_current_span()
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    return await run(*args, **named)

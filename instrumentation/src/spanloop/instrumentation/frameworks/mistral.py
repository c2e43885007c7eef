from opentelemetry.trace import Status, StatusCode
from wrapt import wrap_function_wrapper
def set_up(module):
    wrap_function_wrapper(module, "_resolve_mistral_telemetry_env", lambda f, _, a, n: f(*a, **n) or "global")

def instrument(module):
    wrap_function_wrapper(module, "get_response_and_error", _failed)

def _failed(f, _, args, named):
    span, response = named.get("span"), named.get("response")
    if span:
        span.set_status(Status(StatusCode.ERROR, f"HTTP {response.status_code}"))
        span.set_attribute("error.type", str(response.status_code))
    return f(*args, **named)

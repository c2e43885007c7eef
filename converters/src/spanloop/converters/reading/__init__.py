"""Reading: rows of ``otel_traces`` to spans, whatever dialect and tracer wrote them."""

// `node --import ./openai_telemetry.mjs app.mjs` traces the OpenAI SDK.

import { SpanStatusCode } from "@opentelemetry/api";
import { OpenAIInstrumentation } from "@traceloop/instrumentation-openai";
import OpenAI from "openai";
import { start } from "./telemetry.mjs";

// The instrumentor (0.27) does not end the span of a refused request.
class OpenAIInstrumentationWithErrors extends OpenAIInstrumentation {
  _wrapPromise(type, version, span, promise) {
    endIfRefused(span, promise);
    return super._wrapPromise(type, version, span, promise);
  }

  _streamingWrapPromise(call) {
    endIfRefused(call.span, call.promise);
    return super._streamingWrapPromise(call);
  }
}

function endIfRefused(span, promise) {
  promise.asResponse().catch((error) => { // unlike the promise's own `catch`, this does not read the body
    span.recordException(error);
    span.setAttribute("error.type", error.constructor.name);
    span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
    span.end();
  });
}

start();
new OpenAIInstrumentationWithErrors().manuallyInstrument(OpenAI);

// `node --import ./openai_telemetry.mjs app.mjs` traces the OpenAI SDK.

import { OpenAIInstrumentation } from "@traceloop/instrumentation-openai";
import OpenAI from "openai";
import { start } from "./telemetry.mjs";

start();
new OpenAIInstrumentation().manuallyInstrument(OpenAI);

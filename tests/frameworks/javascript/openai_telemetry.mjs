// `node --import ./openai_telemetry.mjs app.mjs` traces the OpenAI SDK.

import { register } from "node:module";
import { OpenAIInstrumentation } from "@opentelemetry/instrumentation-openai";
import { start } from "./telemetry.mjs";

register("@opentelemetry/instrumentation/hook.mjs", import.meta.url);
start([new OpenAIInstrumentation({ captureMessageContent: true })]);

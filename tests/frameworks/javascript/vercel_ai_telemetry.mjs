// `node --import ./vercel_ai_telemetry.mjs app.mjs` traces the Vercel AI SDK.

import { OpenTelemetry } from "@ai-sdk/otel";
import { registerTelemetry } from "ai";
import { start } from "./telemetry.mjs";

start();
registerTelemetry(new OpenTelemetry());

// `node --import ./langchain_telemetry.mjs app.mjs` traces LangChain.js.

import { LangChainInstrumentation } from "@arizeai/openinference-instrumentation-langchain";
import * as CallbackManagerModule from "@langchain/core/callbacks/manager";
import { start } from "./telemetry.mjs";

start();
new LangChainInstrumentation().manuallyInstrument(CallbackManagerModule);

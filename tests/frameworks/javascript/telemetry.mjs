// OpenTelemetry for Node.js: sends spans and log events to OTEL_EXPORTER_OTLP_ENDPOINT, the last ones before the end.

import { NodeSDK } from "@opentelemetry/sdk-node";

export function start(instrumentations = []) {
  const sdk = new NodeSDK({ instrumentations });
  sdk.start();
  process.once("beforeExit", () => sdk.shutdown());
  process.once("uncaughtException", async (error) => {
    console.error(error);
    await sdk.shutdown();
    process.exit(1);
  });
}

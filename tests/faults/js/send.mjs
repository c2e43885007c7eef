// node send.mjs PROTOCOL URL FIRST_ID SPANS: OpenTelemetry's own SDK and exporter for JavaScript.
// Prints one line of JSON for each batch: its ids, when it left and when its outcome was known (ms), and the outcome.
// The gRPC exporter, unlike the two over HTTP, never sends a batch again: it reports an error and forgets the spans. This
// program then does, as an app must that wants to keep them.

import { setTimeout as sleep } from "node:timers/promises";
import { OTLPTraceExporter as GrpcExporter } from "@opentelemetry/exporter-trace-otlp-grpc";
import { OTLPTraceExporter as JsonExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { OTLPTraceExporter as ProtoExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

const [protocol, url, firstId, spans] = process.argv.slice(2);
const Exporter = { "http/protobuf": ProtoExporter, "http/json": JsonExporter, grpc: GrpcExporter }[protocol];
const exporter = new Exporter({ url, timeoutMillis: 60_000, compression: "gzip" });

const send = (batch, done) => {
  const ids = batch.map((span) => parseInt(span.spanContext().spanId, 16));
  const left = Date.now();
  exporter.export(batch, (result) => {
    const ok = result.code === 0;
    console.log(JSON.stringify({ ids, left, known: Date.now(), ok, error: String(result.error ?? "") }));
    if (ok || protocol !== "grpc") done(result);
    else setTimeout(send, 250, batch, done);
  });
};

const telling = {
  export: send,
  forceFlush: () => exporter.forceFlush?.(),
  shutdown: () => exporter.shutdown(),
};

let nextId = Number(firstId);
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ "service.name": "js" }),
  idGenerator: {
    generateTraceId: () => "5b8efff798038103d269b633813fc60c",
    generateSpanId: () => (nextId++).toString(16).padStart(16, "0"),
  },
  spanProcessors: [
    new BatchSpanProcessor(telling, {
      maxExportBatchSize: 25, scheduledDelayMillis: 50, maxQueueSize: 100_000, exportTimeoutMillis: 60_000,
    }),
  ],
});
const tracer = provider.getTracer("test");
for (let at = 0; at < Number(spans); at++) {
  tracer.startSpan(`span ${at}`, { attributes: { at, list: ["a", "b"], text: "é".repeat(50) } }).end();
  if (at % 10 === 9) await sleep(20);
}
await provider.forceFlush();
await provider.shutdown();

// The Vercel AI SDK.

import { createOpenAI } from "@ai-sdk/openai";
import { Output, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";
import { BASE_URL, DESCRIPTIONS, SYSTEM, TOOLS, drive } from "./driver.mjs";

const model = createOpenAI({ baseURL: `${BASE_URL}/v1`, apiKey: "none" }).chat("gpt-4o");
const tools = Object.fromEntries(
  Object.entries(DESCRIPTIONS).map(([name, description]) => [
    name,
    tool({ description, inputSchema: z.object({ city: z.string() }), execute: async (input) => TOOLS[name](input) }),
  ]),
);

const request = (prompt, more = {}) => ({
  model,
  instructions: SYSTEM,
  prompt,
  tools,
  stopWhen: isStepCount(10),
  maxRetries: 0,
  ...more,
});

const ask = async (question) => (await generateText(request(question))).text;
const askStream = async (question) => await streamText(request(question)).text;

const researcher = tool({
  description: "Ask the researcher.",
  inputSchema: z.object({ request: z.string() }),
  execute: async (input) =>
    (await generateText(request(input.request, { instructions: "You research." }))).text,
});
const delegate = async (question) =>
  (await generateText(request(question, { instructions: "You coordinate.", tools: { ask_researcher: researcher } })))
    .text;

async function askSchema(prompt) {
  const output = Output.object({ schema: z.object({ city: z.string(), degrees: z.number() }) });
  return (await generateText({ model, prompt, output, maxRetries: 0 })).output;
}

await drive({ ask, askStream, delegate, askSchema });

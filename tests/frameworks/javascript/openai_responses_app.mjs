// The OpenAI SDK's Responses API in a loop.

import OpenAI from "openai";
import { BASE_URL, DESCRIPTIONS, FORM, SYSTEM, TOOLS, drive } from "./driver.mjs";

const client = new OpenAI({ baseURL: `${BASE_URL}/v1`, apiKey: "none" });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = Object.entries(DESCRIPTIONS).map(([name, description]) => ({
  type: "function",
  name,
  description,
  parameters,
  strict: false,
}));

function runTool(call) {
  let output;
  try {
    output = TOOLS[call.name](JSON.parse(call.arguments));
  } catch (error) {
    output = `Error: ${error}`;
  }
  return { type: "function_call_output", call_id: call.call_id, output };
}

async function converse(question, respond) {
  const input = [{ role: "user", content: question }];
  for (;;) {
    const response = await respond({ model: "gpt-4o", instructions: SYSTEM, input, tools });
    const results = response.output.filter((item) => item.type === "function_call").map(runTool);
    if (!results.length) return response.output_text;
    input.push(...response.output, ...results);
  }
}

const ask = (question) => converse(question, (request) => client.responses.create(request));
const askStream = (question) =>
  converse(question, async (request) => await client.responses.stream(request).finalResponse());

async function askSchema(input) {
  const format = { type: "json_schema", name: "report", strict: true, schema: FORM };
  const response = await client.responses.parse({ model: "gpt-4o", input, text: { format } });
  return JSON.parse(response.output_text);
}

await drive({ ask, askStream, askSchema });

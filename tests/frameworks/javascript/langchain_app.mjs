// LangChain.js.

import { ChatOpenAI } from "@langchain/openai";
import { ToolMessage, createAgent, createMiddleware, tool } from "langchain";
import { z } from "zod";
import { BASE_URL, DESCRIPTIONS, SYSTEM, TOOLS, drive } from "./driver.mjs";

const configuration = { baseURL: `${BASE_URL}/v1` };
const reporting = createMiddleware({
  name: "ReportErrors",
  wrapToolCall: async (request, handler) => {
    try {
      return await handler(request);
    } catch (error) {
      return new ToolMessage({ content: `Error: ${error}`, tool_call_id: request.toolCall.id, status: "error" });
    }
  },
});
const tools = Object.entries(DESCRIPTIONS).map(([name, description]) =>
  tool(async (input) => TOOLS[name](input), { name, description, schema: z.object({ city: z.string() }) }),
);

function agent(name, systemPrompt, offered) {
  const model = new ChatOpenAI({ model: "gpt-4o", apiKey: "none", configuration, maxRetries: 0 });
  return createAgent({ name, model, tools: offered, systemPrompt, middleware: [reporting] });
}

async function converse(made, question) {
  const { messages } = await made.invoke({ messages: [{ role: "user", content: question }] });
  return messages.at(-1).content;
}

const ask = (question) => converse(agent("reporter", SYSTEM, tools), question);

async function askStream(question) {
  const made = agent("reporter", SYSTEM, tools);
  const input = { messages: [{ role: "user", content: question }] };
  let answer = "";
  for await (const [mode, data] of await made.stream(input, { streamMode: ["values", "messages"] })) {
    if (mode === "values") answer = data.messages.at(-1).content;
  }
  return answer;
}

const researcher = tool(async (input) => await converse(agent("researcher", "You research.", tools), input.request), {
  name: "ask_researcher",
  description: "Ask the researcher.",
  schema: z.object({ request: z.string() }),
});
const delegate = (question) => converse(agent("coordinator", "You coordinate.", [researcher]), question);

await drive({ ask, askStream, delegate });

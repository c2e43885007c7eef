// Codex.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PACKAGES, driveAgent } from "./coding_agent.mjs";
import { BASE_URL } from "./driver.mjs";

const SETTINGS = `
model = "gpt-4o"
model_provider = "gateway"
web_search = "disabled"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.gateway]
name = "gateway"
base_url = "${BASE_URL}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
`;

await driveAgent(async (question, settings) => {
  await writeFile(join(settings, "config.toml"), SETTINGS);
  const codex = join(PACKAGES, "@openai", "codex", "bin", "codex.js");
  const program = [process.execPath, codex, "exec", "--skip-git-repo-check", question];
  return { program, environment: { CODEX_HOME: settings, OPENAI_API_KEY: "none" } };
});

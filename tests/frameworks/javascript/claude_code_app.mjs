// Claude Code.

import { join } from "node:path";
import { PACKAGES, driveAgent } from "./coding_agent.mjs";
import { BASE_URL } from "./driver.mjs";

await driveAgent(async (question) => {
  const claude = join(PACKAGES, "@anthropic-ai", "claude-code", "cli-wrapper.cjs");
  const options = ["--print", question, "--model", "claude-sonnet-5", "--allowedTools", "Bash"];
  const environment = {
    ANTHROPIC_BASE_URL: BASE_URL,
    ANTHROPIC_API_KEY: "none",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  };
  return { program: [process.execPath, claude, ...options], environment };
});

// Runs a coding agent's command line on a task in an empty folder; its answer is what it says and what it wrote.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { driveCommand } from "./driver.mjs";

export const PACKAGES = join(dirname(fileURLToPath(import.meta.url)), "node_modules");

// `command` returns the arguments of the program and its environment for a question and a folder of settings.
export async function driveAgent(command) {
  const settings = await mkdtemp(join(PACKAGES, "settings-")); // Codex refuses settings in a temporary folder
  const work = await mkdtemp(join(PACKAGES, "work-"));
  try {
    await driveCommand(async (question) => {
      const { program, environment } = await command(question, settings);
      const said = await run(program, work, { PATH: process.env.PATH, HOME: settings, ...environment });
      return `${said.trim()} ${(await readFile(join(work, "report.txt"), "utf8")).trim()}`;
    });
  } finally {
    for (const folder of [settings, work]) await rm(folder, { recursive: true, force: true });
  }
}

function run([program, ...parameters], cwd, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, parameters, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (data) => (stdout += data));
    child.stderr.on("data", (data) => (stderr += data));
    child.on("error", reject);
    child.on("close", (code) => (code ? reject(new Error(`exit ${code}: ${stdout}${stderr}`)) : resolve(stdout)));
  });
}

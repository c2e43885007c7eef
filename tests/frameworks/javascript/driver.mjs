// Runs an app's functions on the matrix's tasks, and says on stdout what each task answered; see ../apps/driver.py.

export const BASE_URL = process.env.MODEL_URL ?? "";
export const SYSTEM = "You report about cities. Use the tools.";

const DEGREES = { Oslo: 7, Paris: 18 };

export const TOOLS = {
  get_weather: ({ city }) => {
    if (!(city in DEGREES)) throw new RangeError(`no such city: ${city}`);
    return `${city}: ${DEGREES[city]} degrees`;
  },
  get_population: ({ city }) => `${city}: ${city.length} hundred thousand people`,
};
export const DESCRIPTIONS = { get_weather: "Get the weather of a city.", get_population: "Get the population of a city." };

export const FORM = {
  type: "object",
  properties: { city: { type: "string" }, degrees: { type: "integer" } },
  required: ["city", "degrees"],
  additionalProperties: false,
};

const CHAT = "What is the capital of France? Answer in one sentence.";
const question = (ticket) => `Report the weather of Oslo and Paris for ${ticket}.`;
const tell = (values) => process.stdout.write(`\n${JSON.stringify(values)}\n`);

async function attempt(ticket, ask) {
  try {
    tell({ ticket, answer: String(await ask(question(ticket))) });
  } catch (error) {
    tell({ ticket, error: String(error?.stack ?? error) });
  }
}

export async function driveCommand(askCommand) {
  await attempt("ticket-shell-1", askCommand);
}

export async function drive({ ask, askStream, delegate, askSchema }) {
  if (process.argv[2] === "crash") {
    await ask(question("ticket-crash-1"));
    return;
  }
  if (process.env.MATRIX_GATEWAY === "chat") {
    await attempt("ticket-chat-1", () => ask(CHAT));
    return;
  }
  for (const ticket of ["ticket-report-1", "ticket-report-2"]) await attempt(ticket, ask);
  if (askStream) await attempt("ticket-stream-1", askStream);
  await Promise.all(["ticket-async-1", "ticket-async-2"].map((ticket) => attempt(ticket, ask)));
  if (delegate) await attempt("ticket-delegate-1", delegate);
  if (askSchema && process.env.MATRIX_GATEWAY === "1") {
    await attempt("ticket-schema-1", async (text) => JSON.stringify(await askSchema(text)));
  }
}

"""DSPy's ReAct."""

import dspy
from driver import BASE_URL, TOOLS, drive

model = dspy.LM("openai/gpt-4o", api_base=f"{BASE_URL}/v1", api_key="none", cache=False)
dspy.configure(lm=model)


def agent():
    return dspy.ReAct("question -> answer", tools=list(TOOLS.values()))


def ask(question):
    with dspy.context(lm=model):
        return agent()(question=question).answer


async def ask_async(question):
    return (await agent().acall(question=question)).answer


if __name__ == "__main__":
    drive(ask, ask_async=ask_async)

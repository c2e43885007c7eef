"""The matrix's rows: which packages an app needs, which instrumentors serve it, and how many model calls it makes."""

from typing import NamedTuple


HANDOFF_STEPS = 3


class Row(NamedTuple):
    """One framework or SDK with its app."""

    name: str
    """Of the app's file, of the environment, and of the row's results."""
    title: str
    packages: tuple[str, ...]
    """What a user installs; the first one's version is the row's."""
    instrumentors: tuple[str, ...] = ()
    """What is installed beside the core package, because it traces this library best."""
    app: str = ""
    """The app's file where it isn't `name`; two rows may share an app."""
    environment: dict[str, str] = {}  # noqa: RUF012  a default of a NamedTuple
    steps: int = 4
    """Model calls of a task: a failed tool call, one that works, two parallel ones, the answer."""
    delegated_steps: int = 4
    """Model calls of a task that one agent hands to another: a tool call and an answer of each, or one fewer where the
    second agent goes on with the same conversation and answers the user."""
    is_sdk: bool = False
    """Whether the app runs its tools itself, so that only the history tells of them."""
    impossible: str = ""
    """Why the row has no app."""

    @property
    def is_handoff(self) -> bool:
        """Whether the second agent of a delegated task goes on with the first one's conversation."""
        return self.delegated_steps == HANDOFF_STEPS


ROWS: tuple[Row, ...] = (
    Row("openai_chat", "OpenAI SDK, chat", ("openai",), is_sdk=True),
    Row("openai_responses", "OpenAI SDK, Responses", ("openai",), is_sdk=True),
    Row("langchain", "LangChain", ("langchain", "langchain-openai"), app="langchain_agent"),
    Row("langgraph", "LangGraph", ("langgraph", "langchain-openai"), app="langgraph_agent"),
    Row("openai_agents", "openai-agents, Responses", ("openai-agents",), app="openai_agents_app", delegated_steps=3),
    Row(
        "openai_agents_chat",
        "openai-agents, chat",
        ("openai-agents",),
        app="openai_agents_app",
        environment={"MATRIX_API": "chat"},
        delegated_steps=3,
    ),
    Row("pydantic_ai", "Pydantic AI", ("pydantic-ai-slim[openai]",), app="pydantic_ai_app"),
    Row(
        "llama_index",
        "LlamaIndex",
        ("llama-index-core", "llama-index-llms-openai-like"),
        app="llama_index_app",
        delegated_steps=3,
    ),
    Row("smolagents", "smolagents", ("smolagents[openai]",), app="smolagents_app"),
)

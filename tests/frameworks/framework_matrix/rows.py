"""The matrix's rows: which packages an app needs, which instrumentors serve it, and how many model calls it makes."""

import re
from typing import NamedTuple, Self


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
    conversations: int = 1
    """Conversations of a task; two where another prompt makes the answer out of the first one's end."""
    delegated_steps: int = 4
    """Model calls of a task that one agent hands to another: a tool call and an answer of each, one fewer where the
    second agent answers the user, one more where the first agent says that it waits for the second."""
    delegated_conversations: int = 2
    """Conversations of such a task; one where the second agent goes on with the first one's messages."""
    is_sdk: bool = False
    """Whether the app runs its tools itself, so that only the history tells of them."""
    writes_calls: bool = False
    """Whether the model writes its tool calls into its text, where they have no ids."""
    is_gateway_client: bool = False
    """Whether the app speaks an API of the gateway; it runs there, too."""
    has_long_prompts: bool = False
    """Whether its prompts are longer than the context of a small model, as those of coding agents are."""
    is_recorded: bool = True
    """Whether the app runs with telemetry; others run through the gateway only."""
    is_javascript: bool = False
    """Whether the packages are npm's, and the app runs in Node.js."""
    impossible: str = ""
    """Why the row has no app."""
    oldest: tuple[str, ...] = ()
    """Older releases of the first package, oldest first: the first that is recorded completely is the oldest one that
    works. ``--oldest`` tries them."""

    @property
    def package(self) -> str:
        """The first package, without its extras and its range or, of npm, its version."""
        return re.split(r"[\[<>=]|(?<=.)@", self.packages[0])[0]

    def at(self, version: str) -> Self:
        """The row with a release of the first package."""
        requirement = re.split("[<>=]", self.packages[0])[0]
        return self._replace(packages=(f"{requirement}=={version}", *self.packages[1:]))


ROWS: tuple[Row, ...] = (
    Row(
        "openai_chat", "OpenAI SDK, chat", ("openai",), is_sdk=True, is_gateway_client=True, oldest=("1.92.0", "2.0.0")
    ),
    Row(
        "openai_responses",
        "OpenAI SDK, Responses",
        ("openai",),
        is_sdk=True,
        is_gateway_client=True,
        oldest=("1.92.0", "2.0.0"),
    ),
    Row(
        "langchain",
        "LangChain",
        ("langchain", "langchain-openai"),
        app="langchain_agent",
        is_gateway_client=True,
        oldest=("1.0.0", "1.2.0"),
    ),
    Row(
        "langgraph",
        "LangGraph",
        ("langgraph", "langchain-openai"),
        app="langgraph_agent",
        oldest=("1.1.10", "1.2.0"),
    ),
    Row(
        "openai_agents",
        "openai-agents, Responses",
        ("openai-agents",),
        app="openai_agents_app",
        is_gateway_client=True,
        delegated_steps=3,
        delegated_conversations=1,
        oldest=("0.14.0", "0.19.0"),
    ),
    Row(
        "openai_agents_chat",
        "openai-agents, chat",
        ("openai-agents",),
        app="openai_agents_app",
        is_gateway_client=True,
        environment={"MATRIX_API": "chat"},
        delegated_steps=3,
        delegated_conversations=1,
        oldest=("0.14.0", "0.19.0"),
    ),
    Row(
        "pydantic_ai",
        "Pydantic AI",
        ("pydantic-ai-slim[openai]",),
        app="pydantic_ai_app",
        is_gateway_client=True,
        oldest=("2.0.0",),
    ),
    Row(
        "llama_index",
        "LlamaIndex",
        ("llama-index-core", "llama-index-llms-openai-like"),
        app="llama_index_app",
        is_gateway_client=True,
        delegated_steps=3,
        delegated_conversations=1,
        oldest=("0.14.10", "0.14.20"),
    ),
    Row(
        "smolagents",
        "smolagents",
        ("smolagents[openai]",),
        app="smolagents_app",
        oldest=("1.22.0", "1.24.0"),
    ),
    Row("crewai", "CrewAI", ("crewai",), app="crewai_app", oldest=("1.14.0", "1.15.0")),
    Row(
        "autogen",
        "AutoGen",
        ("autogen-agentchat", "autogen-ext[openai]"),
        app="autogen_app",
        is_gateway_client=True,
        delegated_steps=3,
        oldest=("0.6.0", "0.7.0"),
    ),
    Row("ag2", "AG2", ("ag2[openai]",), app="ag2_app", oldest=("1.1.10", "1.2.0")),
    # its import fails with mcp 2 and openai 3, which its metadata allows, and with SQLAlchemy 2.1 without greenlet
    Row(
        "agentscope1",
        "AgentScope 1",
        ("agentscope<2", "mcp<2", "openai<3", "greenlet"),
        app="agentscope1_app",
        oldest=("1.0.0", "1.0.10"),
    ),
    Row("agentscope", "AgentScope 2", ("agentscope",), app="agentscope_app", is_gateway_client=True, oldest=("2.0.0",)),
    Row(
        "dspy",
        "DSPy",
        ("dspy",),
        ("openinference-instrumentation-dspy",),
        app="dspy_app",
        steps=6,
        conversations=2,
        writes_calls=True,
        oldest=("3.0.0", "3.2.0"),
    ),
    Row("google_adk", "Google ADK", ("google-adk",), app="google_adk_app", oldest=("2.7.0", "2.11.0")),
    Row("haystack", "Haystack", ("haystack-ai",), app="haystack_app", oldest=("3.1.0", "3.3.0")),
    # its completion() imports mcp, which it does not require
    Row(
        "litellm",
        "LiteLLM",
        ("litellm", "mcp"),
        ("openinference-instrumentation-litellm",),
        app="litellm_app",
        is_gateway_client=True,
        is_sdk=True,
        oldest=("1.96.0", "1.102.0"),
    ),
    Row(
        "semantic_kernel",
        "Semantic Kernel",
        ("semantic-kernel",),
        app="semantic_kernel_app",
        oldest=("1.37.0", "1.40.0"),
    ),
    Row(
        "agent_framework",
        "Microsoft Agent Framework",
        ("agent-framework-core", "agent-framework-openai"),
        app="agent_framework_app",
        oldest=("1.5.0", "1.10.0"),
    ),
    Row("strands", "Strands Agents", ("strands-agents[openai]",), app="strands_app", oldest=("1.46.0", "1.56.0")),
    Row("agno", "Agno", ("agno", "openai"), app="agno_app", oldest=("2.9.0", "3.0.0")),
    Row(
        "claude_agent_sdk",
        "Claude Agent SDK",
        ("claude-agent-sdk",),
        app="claude_agent_sdk_app",
        is_gateway_client=True,
        has_long_prompts=True,
        delegated_steps=5,
        oldest=("0.2.100", "0.2.150"),
    ),
    Row(
        "anthropic",
        "Anthropic SDK",
        ("anthropic",),
        ("opentelemetry-instrumentation-anthropic",),
        app="anthropic_app",
        is_gateway_client=True,
        is_sdk=True,
        oldest=("0.60.0", "1.0.0"),
    ),
    Row(
        "google_genai",
        "Google GenAI SDK",
        ("google-genai",),
        ("openinference-instrumentation-google-genai",),
        app="google_genai_app",
        is_sdk=True,
        oldest=("1.20.0", "2.0.0"),
    ),
    Row(
        "mistral",
        "Mistral SDK",
        ("mistralai",),
        app="mistral_app",
        is_sdk=True,
        oldest=("2.9.0", "3.0.0"),
    ),
    Row(
        "cohere",
        "Cohere SDK",
        ("cohere",),
        ("openinference-instrumentation-cohere",),
        app="cohere_app",
        is_sdk=True,
        oldest=("5.15.0", "6.0.0"),
    ),
    Row(
        "bedrock",
        "Bedrock Converse (boto3)",
        ("boto3",),
        ("openinference-instrumentation-bedrock",),
        app="bedrock_app",
        is_sdk=True,
        oldest=("1.37.0", "1.40.0"),
    ),
)

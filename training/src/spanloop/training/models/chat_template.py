"""Chat templates: where a folder keeps them, what they write, and those that come with spanloop.

Rendering is transformers' own, so that a check sees what the engine will see; it needs no torch.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, cast

DEFAULT: Final = "default"
_TOOL_USE: Final = "tool_use"


def packaged_template(name: str) -> str:
    """The text of a template that comes with spanloop, such as ``smollm2_tools``."""
    return (files("spanloop.training") / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


def folder_templates(folder: Path) -> dict[str, str]:
    """The chat templates of a model folder by name, from every place that transformers reads; the first place wins.

    Raises:
        ValueError: A file is no JSON or holds no template where one should be.
    """
    found: dict[str, str] = {}
    if (file := folder / "chat_template.jinja").is_file():
        found[DEFAULT] = file.read_text(encoding="utf-8")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = path.read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        if not found and (folder / name).is_file():
            found = _named(json.loads((folder / name).read_text(encoding="utf-8")).get("chat_template"), folder / name)
    return found


def _named(value: object, path: Path) -> dict[str, str]:
    """One template, or a list of ``{"name": …, "template": …}``."""
    match value:
        case None | "":
            return {}
        case str():
            return {DEFAULT: value}
        case list():
            entries = cast("list[dict[str, Any]]", value)
            return {str(entry["name"]): str(entry["template"]) for entry in entries}
        case _:
            raise ValueError(f"{path} has a chat_template of type {type(value).__name__}, expected text or a list")


def template_for(templates: Mapping[str, str], *, tools: bool) -> str | None:
    """The one that transformers and vLLM take for a request with or without tools."""
    if tools and _TOOL_USE in templates:
        return templates[_TOOL_USE]
    return templates.get(DEFAULT)


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    add_generation_prompt: bool = False,
    special_tokens: Mapping[str, str] | None = None,
) -> str:
    """The text that a conversation becomes.

    Args:
        template: Jinja.
        messages: OpenAI messages; the arguments of tool calls as objects, which is how engines hand them over.
        tools: OpenAI tool definitions.
        add_generation_prompt: Whether the text ends with the beginning of an answer.
        special_tokens: ``bos_token``, ``eos_token``, …, which some templates write.

    Raises:
        jinja2.TemplateError: The template is broken or refuses the conversation.
    """
    from transformers.utils import chat_template_utils  # noqa: PLC0415 - most of a second

    # Annotated as giving text; it gives the texts and where the assistant's parts are.
    render_conversations: Any = chat_template_utils.render_jinja_template  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    rendered: list[str]
    rendered, _ = render_conversations(
        conversations=[[dict(message) for message in messages]],
        tools=[dict(tool) for tool in tools] or None,
        chat_template=template,
        add_generation_prompt=add_generation_prompt,
        **(special_tokens or {}),
    )
    return rendered[0]

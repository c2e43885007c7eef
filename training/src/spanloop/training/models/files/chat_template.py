"""Chat templates of a model folder: read, select and render them.

transformers renders them, so that a check sees the same text as the engine; it needs no torch.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

DEFAULT: Final = "default"
_TOOL_USE: Final = "tool_use"


def folder_templates(folder: Path) -> dict[str, str]:
    """Return the chat templates of a model folder by name, from the first of the files that transformers reads.

    Raises:
        ValueError: A file is not valid JSON or has no valid template.
    """
    templates: dict[str, str] = {}
    if (file := folder / "chat_template.jinja").is_file():
        templates[DEFAULT] = file.read_text(encoding="utf-8")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = path.read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        if not templates and (folder / name).is_file():
            templates = _parse_templates(
                json.loads((folder / name).read_text(encoding="utf-8")).get("chat_template"), folder / name
            )
    return templates


def _parse_templates(value: object, path: Path) -> dict[str, str]:
    """Parse one template, or a list of ``{"name": …, "template": …}``."""
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
    """Return the template that transformers and vLLM use for a request with or without tools."""
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
    """Render a conversation to text.

    Args:
        template: The Jinja template.
        messages: OpenAI messages; tool call arguments are objects, as engines pass them.
        tools: OpenAI tool definitions.
        add_generation_prompt: Whether the text ends with the start of an assistant message.
        special_tokens: ``bos_token``, ``eos_token``, …, which some templates use.

    Raises:
        jinja2.TemplateError: The template is invalid or rejects the conversation.
    """
    from transformers.utils import chat_template_utils  # noqa: PLC0415 - most of a second

    # Annotated to return text; it returns the texts and the positions of the assistant's parts.
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

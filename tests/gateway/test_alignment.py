"""Exact ids of a conversation, aligned with new renderings of it, under the templates of known families."""
# tokenizers is only partly typed, and a stand-in's documents are JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.converters.enums import RowStart
from spanloop.converters.tokens.row_starts import by_tokens
from spanloop.foundation.errors import ConfigurationError
from spanloop.gateway.continuation.alignment import Alignment, Spans, align
from spanloop.gateway.continuation.token_parts import AnswerSource, normalise
from spanloop.gateway.continuation.vocabulary import Vocabulary

from .chat_templates import TEMPLATES, Renderer, make_tokenizer

TOKENIZER = make_tokenizer()
USER = {"role": "user", "content": "find the weather here"}
FAMILIES = sorted(TEMPLATES)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    folder = tmp_path_factory.mktemp("model")
    TOKENIZER.save(str(folder / "tokenizer.json"))
    return Vocabulary.read(folder)


def answer(content: str, *, arguments: str = "", reasoning: str = "") -> dict[str, Any]:
    calls = [{"id": "c1", "function": {"name": "find", "arguments": arguments}}] if arguments else []
    return {"role": "assistant", "content": content, "tool_calls": calls, "reasoning": reasoning}


def tool(content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c1", "content": content}


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """The vocabulary of a version that keeps thinking."""
    folder = tmp_path_factory.mktemp("keeping")
    TOKENIZER.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"thinking": "keep"}')
    return Vocabulary.read(folder)


class Conversation:
    """What an engine sees and samples; each prompt is aligned with the one before."""

    def __init__(self, family: str, vocabulary: Vocabulary) -> None:
        self.renderer = Renderer(TOKENIZER, family)
        self._vocabulary = vocabulary
        self.exact: list[int] = []
        self.sampled = Spans()
        self.messages = 0

    def prompt(self, messages: list[dict[str, Any]]) -> Alignment:
        rendered = array("I", self.renderer.ids(messages))
        aligned = align(array("I", self.exact), self.sampled, rendered, self._vocabulary, messages)
        self.exact, self.sampled = aligned.token_ids, aligned.sampled
        self.messages = len(messages)
        return aligned

    def sample(self, text: str, *, ends: bool = True, has_reasoning: bool = False) -> None:
        """Sample the text in tokens that the tokenizer does not choose."""
        begin = len(self.exact)
        self.exact += self.renderer.by_characters(text)
        if ends:
            self.exact += self.renderer.encode(self.renderer.end_of_turn)
        self.sampled = self.sampled.plus(begin, len(self.exact), AnswerSource(self.messages, has_reasoning))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bytes_of_tokens_are_the_text(vocabulary: Vocabulary, family: str) -> None:
    renderer = Renderer(TOKENIZER, family)
    text = renderer.text([USER, answer("naïve 🙂 \u2028 text", arguments='{"city": "São"}'), tool("1")])
    assert vocabulary.text(renderer.encode(text)).decode() == text
    assert vocabulary.text(renderer.by_characters(text)).decode() == text
    assert renderer.by_characters(text) != renderer.encode(text)


@pytest.mark.parametrize("family", [name for name in FAMILIES if not TEMPLATES[name][2]])
def test_turns_without_thinking_go_on_from_all_ids(vocabulary: Vocabulary, family: str) -> None:
    conversation = Conversation(family, vocabulary)
    messages: list[dict[str, Any]] = [USER]
    conversation.prompt(messages)
    for turn in range(8):
        before = list(conversation.exact)
        conversation.sample(f"here and then {turn}")
        sampled = list(conversation.exact)
        messages += [answer(f"here and then {turn}"), {"role": "user", "content": "and then"}]
        aligned = conversation.prompt(messages)
        assert aligned.is_whole
        assert aligned.exact == len(sampled)
        assert aligned.token_ids[: len(sampled)] == sampled
        assert sampled[: len(before)] == before
        assert vocabulary.text(aligned.token_ids).decode() == conversation.renderer.text(messages)


@pytest.mark.parametrize(
    ("family", "written"),
    [
        ("qwen2.5", '\n<tool_call>{"name":"find","arguments":{"city":"S\\u00e3o"}}</tool_call>'),
        ("llama3", '  \n<tool_call>\n{"name": "find",  "arguments": {"city": "São"}}\n</tool_call>'),
    ],
)
def test_a_tool_call_that_is_written_again_stays_as_it_was_sampled(
    vocabulary: Vocabulary, family: str, written: str
) -> None:
    conversation = Conversation(family, vocabulary)
    conversation.prompt([USER])
    conversation.sample(written)
    sampled = list(conversation.exact)
    messages = [USER, answer("", arguments='{"city": "São"}'), tool("nothing here")]
    aligned = conversation.prompt(messages)
    assert aligned.is_whole
    assert aligned.token_ids[: len(sampled)] == sampled
    suffix = vocabulary.text(aligned.token_ids[len(sampled) :]).decode()
    assert conversation.renderer.text(messages).endswith(suffix)
    assert "nothing here" in suffix


def test_characters_that_json_escapes_as_two_are_equal() -> None:
    assert normalise(b'"\\ud83d\\ude42 \\u00e9"') == normalise('"🙂 é"'.encode())
    assert normalise(b"\\ud83d") == normalise(b"\xf0\x9f")  # half of it is no text


@pytest.mark.parametrize("returned", ["found \ufffd\ufffd here", "found \ufffd here", "found  here"])
def test_bytes_that_are_no_utf_8_stay_as_they_were_sampled(vocabulary: Vocabulary, returned: str) -> None:
    conversation = Conversation("qwen2.5", vocabulary)
    conversation.prompt([USER])
    conversation.sample("found ", ends=False)
    broken = [next(token for token, piece in vocabulary.pieces.items() if piece == byte) for byte in (b"\xbc", b"\xf0")]
    begin = conversation.sampled.ranges[-1][0]
    conversation.exact += [*broken, *conversation.renderer.encode(" here<|im_end|>")]
    conversation.sampled = Spans(((begin, len(conversation.exact)),))
    sampled = list(conversation.exact)
    aligned = conversation.prompt([USER, answer(returned), USER])
    assert (aligned.is_whole, aligned.exact) == (True, len(sampled))
    suffix = vocabulary.text(aligned.token_ids[len(sampled) :]).decode()
    assert suffix == "\n<|im_start|>user\nfind the weather here<|im_end|>\n<|im_start|>assistant\n"


def test_white_space_counts_outside_of_what_was_sampled(vocabulary: Vocabulary) -> None:
    conversation = Conversation("qwen2.5", vocabulary)
    conversation.prompt([USER])
    conversation.sample("found")
    edited = [{"role": "user", "content": "find the  weather here"}, answer("found"), USER]
    aligned = conversation.prompt(edited)
    assert not aligned.is_whole
    assert vocabulary.text(aligned.token_ids[: aligned.exact]).decode() == "<|im_start|>user\nfind the"
    assert vocabulary.text(aligned.token_ids).decode() == conversation.renderer.text(edited)


@pytest.mark.parametrize("family", ["qwen3", "glm"])
def test_thinking_is_kept_between_tools_and_dropped_after_the_next_user_message(
    vocabulary: Vocabulary, family: str
) -> None:
    conversation = Conversation(family, vocabulary)
    messages: list[dict[str, Any]] = [USER]
    conversation.prompt(messages)
    for turn in range(8):
        thinking, text = f"then {turn}", f"here {turn}"
        # In GLM's template the next mark ends a turn.
        conversation.sample(conversation.renderer.thinking.format(thinking) + text, ends=family == "qwen3")
        messages += [answer(text, reasoning=thinking), tool("found")]
        sampled = list(conversation.exact)
        aligned = conversation.prompt(messages)
        assert (aligned.is_whole, aligned.exact) == (True, len(sampled)), turn
    messages = [*messages, answer("here"), USER]
    aligned = conversation.prompt(messages)
    assert not aligned.is_whole
    text = conversation.renderer.text(messages)
    assert vocabulary.text(aligned.token_ids).decode() == text
    exact = vocabulary.text(aligned.token_ids[: aligned.exact]).decode()
    assert text.startswith(exact)
    assert exact.startswith(conversation.renderer.text([USER], add_generation_prompt=False))


def test_an_answer_without_its_analysis_branches_at_the_answer(vocabulary: Vocabulary) -> None:
    conversation = Conversation("gpt-oss", vocabulary)
    messages: list[dict[str, Any]] = [USER]
    first = len(conversation.prompt(messages).token_ids)
    conversation.sample(conversation.renderer.thinking.format("then") + "<|channel|>final<|message|>here")
    messages += [answer("here"), USER]
    aligned = conversation.prompt(messages)
    assert not aligned.is_whole
    assert aligned.exact == first + 1  # the mark of a channel
    assert vocabulary.text(aligned.token_ids).decode() == conversation.renderer.text(messages)


@pytest.mark.parametrize(
    "text", ["found <|im_start|>nothing", "found <|start|>nothing<|end|>\n", "<|im_start|>found nothing"]
)
def test_marks_that_a_parser_drops_stay_as_they_were_sampled(vocabulary: Vocabulary, text: str) -> None:
    conversation = Conversation("qwen2.5", vocabulary)
    conversation.prompt([USER])
    conversation.sample(text)
    messages: list[dict[str, Any]] = [USER, answer("found nothing"), USER]
    for turn in range(3):
        sampled = list(conversation.exact)
        aligned = conversation.prompt(messages)
        assert (aligned.is_whole, aligned.exact) == (True, len(sampled)), turn
        suffix = vocabulary.text(aligned.token_ids[len(sampled) :]).decode()
        assert suffix == "\n<|im_start|>user\nfind the weather here<|im_end|>\n<|im_start|>assistant\n"
        conversation.sample("here")
        messages += [answer("here"), USER]


@pytest.mark.parametrize("family", ["qwen2.5", "llama3", "smollm2"])
def test_a_cut_answer_goes_on_from_all_ids(vocabulary: Vocabulary, family: str) -> None:
    conversation = Conversation(family, vocabulary)
    conversation.prompt([USER])
    conversation.sample("found noth", ends=False)
    sampled = list(conversation.exact)
    messages = [USER, answer("found noth"), USER]
    aligned = conversation.prompt(messages)
    assert aligned.is_whole
    assert aligned.token_ids[: len(sampled)] == sampled
    assert vocabulary.text(aligned.token_ids).decode() == conversation.renderer.text(messages)


@pytest.mark.parametrize("family", ["qwen2.5", "llama3", "qwen3"])
@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('<tool_call>\n{"name": "find", "arguments": {"a": 2}, "target": {"type": "x"}}', '{"a": 2}'),
        ('<tool_call>\n{"name": "find", "arguments": {"a": 2}}\n</tool_call>\nThe city is Paris.', '{"a": 2}'),
        ('<tool_call>\n{"name": "find", "arguments": {"a": 90, "a": 19}}\n</tool_call>', '{"a": 19}'),
        ('<tool_call>\n{"arguments": {"a": 2}, "name": "find"}\n</tool_call>', '{"a": 2}'),
        ('then <tool_call>\n{"name": "find", "arguments": {"a": 2}} }}', '{"a": 2}'),
    ],
)
@pytest.mark.parametrize("ends", [True, False])
def test_what_a_parser_drops_of_a_call_stays_as_it_was_sampled(
    vocabulary: Vocabulary, family: str, written: str, arguments: str, *, ends: bool
) -> None:
    conversation = Conversation(family, vocabulary)
    messages: list[dict[str, Any]] = [USER]
    conversation.prompt(messages)
    for turn in range(3):
        conversation.sample(written, ends=ends)
        sampled = list(conversation.exact)
        messages += [answer(written.partition("<tool_call>")[0], arguments=arguments), tool(f"found {turn}")]
        aligned = conversation.prompt(messages)
        assert (aligned.is_whole, aligned.exact) == (True, len(sampled)), turn
        suffix = vocabulary.text(aligned.token_ids[len(sampled) :]).decode()
        assert conversation.renderer.text(messages).endswith(suffix)
        assert f"found {turn}" in suffix


@pytest.mark.parametrize("family", ["qwen2.5", "llama3", "smollm2"])
def test_a_stop_sequence_that_is_cut_off_stays_as_it_was_sampled(vocabulary: Vocabulary, family: str) -> None:
    conversation = Conversation(family, vocabulary)
    conversation.prompt([USER])
    conversation.sample("found then Observation:", ends=False)
    sampled = list(conversation.exact)
    messages = [USER, answer("found then "), USER]
    aligned = conversation.prompt(messages)
    assert (aligned.is_whole, aligned.exact) == (True, len(sampled))
    suffix = vocabulary.text(aligned.token_ids[len(sampled) :]).decode()
    assert conversation.renderer.text(messages).endswith(suffix)


@pytest.mark.parametrize("family", ["qwen3", "glm", "gpt-oss"])
def test_the_words_behind_dropped_thinking_keep_their_sampled_tokens(vocabulary: Vocabulary, family: str) -> None:
    conversation = Conversation(family, vocabulary)
    renderer = conversation.renderer
    messages: list[dict[str, Any]] = [USER]
    conversation.prompt(messages)
    mark = "<|channel|>final<|message|>" if family == "gpt-oss" else ""
    packed: set[tuple[int, ...]] = set()
    unbranched = len(conversation.exact)
    for turn in range(8):
        text = f"nothing here and then the assistant {turn} "
        question = {"role": "user", "content": f"find the weather of city {turn} " * 20}
        prompt = list(conversation.exact)
        conversation.sample(
            renderer.thinking.format(f"so {turn}") + mark + text, has_reasoning=True, ends=family != "glm"
        )
        packed |= {tuple(conversation.exact[:end]) for end in range(len(conversation.exact) + 1)}
        unbranched += len(conversation.exact) - len(prompt)
        before = list(conversation.exact)
        messages += [answer(text), question]
        aligned = conversation.prompt(messages)
        unbranched += len(renderer.encode(question["content"]))
        assert not aligned.is_whole
        assert vocabulary.text(aligned.token_ids).decode() == renderer.text(messages)
        assert by_tokens(prompt, before[len(prompt) :], aligned.token_ids) == RowStart.TEMPLATE_CHANGED
    assert len(packed) <= 1.1 * unbranched


@pytest.mark.parametrize("family", ["qwen3", "glm"])
def test_the_thinking_of_several_calls_that_is_dropped_is_the_templates_doing(
    vocabulary: Vocabulary, family: str
) -> None:
    conversation = Conversation(family, vocabulary)
    messages: list[dict[str, Any]] = [USER]
    conversation.prompt(messages)
    first, before = len(conversation.exact), list[int]()
    for turn in range(8):
        text = f"nothing here and then {turn}"
        conversation.sample(
            conversation.renderer.thinking.format(f"so {turn}") + text, has_reasoning=True, ends=family == "qwen3"
        )
        messages += [answer(text, reasoning=f"so {turn}"), tool(f"found {turn}")]
        before = list(conversation.exact)
        assert conversation.prompt(messages).token_ids[: len(before)] == before  # one row
    messages[-1] = USER
    aligned = conversation.prompt(messages)
    assert vocabulary.text(aligned.token_ids).decode() == conversation.renderer.text(messages)
    assert by_tokens(before[:first], before[first:], aligned.token_ids) == RowStart.TEMPLATE_CHANGED


@pytest.mark.parametrize("returns_reasoning", [True, False])
@pytest.mark.parametrize("family", ["qwen3", "glm", "gpt-oss"])
def test_thinking_of_earlier_turns_is_kept_where_the_version_keeps_it(
    keeping: Vocabulary, family: str, *, returns_reasoning: bool
) -> None:
    conversation = Conversation(family, keeping)
    renderer, is_harmony = conversation.renderer, family == "gpt-oss"
    messages: list[dict[str, Any]] = [USER]
    conversation.prompt(messages)
    for turn in range(8):
        thinking, content = f"so {turn}", f"here {turn}"
        sampled = renderer.thinking.format(thinking) + ("<|channel|>final<|message|>" if is_harmony else "") + content
        call = f'\n<tool_call>\n{{"name": "find",  "arguments": {{"n": {turn}}}}}\n</tool_call>' if turn % 2 else ""
        conversation.sample(sampled + call, ends=family != "glm", has_reasoning=True)
        received = answer(content, arguments=f'{{"n": {turn}}}' if call else "")
        if returns_reasoning:
            received["reasoning"] = thinking
        messages += [received, tool("found") if call else {"role": "user", "content": f"and then {turn}"}]
        before = list(conversation.exact)
        aligned = conversation.prompt(messages)
        kept = len(before) - is_harmony  # the mark of its last turn is another one in a history
        assert aligned.token_ids[:kept] == before[:kept]
        assert aligned.is_whole != is_harmony
        assert renderer.text(messages).endswith(keeping.text(aligned.token_ids[kept:]).decode())
    text = keeping.text(conversation.exact).decode()
    assert all(f"so {turn}" in text for turn in range(8))


def test_thinking_in_the_text_is_kept_where_the_template_removes_it(keeping: Vocabulary) -> None:
    conversation = Conversation("qwen3", keeping)
    conversation.prompt([USER])
    text = "<think>\nso\n</think>\n\nhere"
    conversation.sample(text)  # without a parser of thinking
    rendered = array("I", conversation.renderer.ids([USER, answer("here"), USER]))
    aligned = align(array("I", conversation.exact), conversation.sampled, rendered, keeping, [USER, answer(text), USER])
    assert (aligned.is_whole, aligned.exact) == (True, len(conversation.exact))


def test_kept_thinking_is_no_reason_to_keep_what_the_client_edited(keeping: Vocabulary) -> None:
    conversation = Conversation("qwen3", keeping)
    conversation.prompt([USER])
    conversation.sample("<think>\nso\n</think>\n\nhere", has_reasoning=True)
    edited = [USER, answer("there", reasoning="so"), USER]
    aligned = conversation.prompt(edited)
    assert not aligned.is_whole
    assert keeping.text(aligned.token_ids).decode() == conversation.renderer.text(edited)


TEXTS = st.text(alphabet=st.sampled_from('the Paris🙂é\n {}":,'), min_size=1, max_size=12)


@given(st.sampled_from(FAMILIES), st.lists(st.tuples(TEXTS, TEXTS), max_size=4), st.integers(0, 5), TEXTS)
def test_any_history_gives_the_text_of_its_rendering(
    vocabulary: Vocabulary, family: str, turns: list[tuple[str, str]], edited: int, text: str
) -> None:
    conversation = Conversation(family, vocabulary)
    messages: list[dict[str, Any]] = [USER]
    conversation.prompt(messages)
    for content, question in turns:
        conversation.sample(content)
        messages += [answer(content), {"role": "user", "content": question}]
        aligned = conversation.prompt(messages)
        exact = aligned.token_ids[: aligned.exact]
        assert aligned.token_ids == conversation.exact
        assert vocabulary.text(aligned.token_ids[aligned.exact :]).decode(errors="replace") in (
            conversation.renderer.text(messages)
        )
        assert (
            _squeezed(vocabulary.text(exact))
            == _squeezed(conversation.renderer.text(messages).encode())[: len(_squeezed(vocabulary.text(exact)))]
        )
    if edited < len(messages):
        messages[edited] = {**messages[edited], "content": text}
    aligned = conversation.prompt(messages)
    assert _squeezed(vocabulary.text(aligned.token_ids)) == _squeezed(conversation.renderer.text(messages).encode())


def _squeezed(text: bytes) -> bytes:
    return b"".join(text.split())


def test_a_folder_without_a_readable_tokenizer_is_named(tmp_path: Path) -> None:
    for content in (None, "{}", "[", '{"model": {"vocab": 3}}'):
        if content is not None:
            (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(ConfigurationError, match="cannot be read as a tokenizer"):
            Vocabulary.read(tmp_path)


def test_byte_pieces_and_spaces_of_other_tokenizers_are_bytes(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(
        '{"decoder": {"type": "ByteFallback"}, "model": {"vocab": [["<0xE2>", 0], ["▁a", -1.5], ["b", -2]]}}'
    )
    vocabulary = Vocabulary.read(tmp_path)
    assert [vocabulary.pieces[token_id] for token_id in range(3)] == [b"\xe2", b" a", b"b"]

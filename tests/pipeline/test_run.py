import converters_recordings as recordings

from spanloop.pipeline import run
from spanloop.store import Store


def test_a_run_stores_what_the_recording_holds_and_a_second_run_changes_nothing(store: Store) -> None:
    spans = recordings.span_frame(recordings.load("plain_openai_loops_openllmetry")["spans"])
    store.insert("otel_traces", recordings.stored_frame(spans, store.schema("otel_traces")))
    first = run(store)
    assert (first.spans, first.episodes, first.transitions, first.failures) == (39, 12, 39, 7)
    assert run(store).episodes == 0

-- Model calls of TruLens, HoneyHive, PromptLayer, Agenta, Basalt, Orq and Neatlogs, too.
-- Spans that are there keep the value that they were stored with.
ALTER TABLE otel_traces MODIFY COLUMN IF EXISTS IsModelCall Bool MATERIALIZED
    SpanAttributes['gen_ai.operation.name'] IN ('chat', 'text_completion', 'generate_content')
    OR (
        SpanAttributes['gen_ai.request.model'] != ''
        AND (
            SpanAttributes['gen_ai.operation.name'] = ''
            OR (
                SpanAttributes['gen_ai.operation.name'] NOT IN (
                    'execute_tool', 'invoke_agent', 'create_agent', 'embeddings', 'invoke_workflow', 'execute_task',
                    'retrieval', 'rerank'
                )
                AND (
                    mapContains(SpanAttributes, 'gen_ai.input.messages')
                    OR mapContains(SpanAttributes, 'gen_ai.output.messages')
                )
            )
        )
    )
    OR upper(coalesce(
        nullIf(SpanAttributes['openinference.span.kind'], ''),
        nullIf(SpanAttributes['gen_ai.span.kind'], ''),
        nullIf(SpanAttributes['fi.span.kind'], ''),
        SpanAttributes['lmnr.span.type']
    )) = 'LLM'
    OR (mapContains(SpanAttributes, 'monocle_apptrace.version') AND match(SpanAttributes['span.type'], '^inference($|\\.)'))
    OR SpanAttributes['llm.request.type'] IN ('chat', 'completion')
    OR SpanAttributes['gen_ai.request.type'] IN ('chat', 'completion')
    OR match(SpanAttributes['ai.operationId'], '\\.do(Generate|Stream)$')
    OR SpanAttributes['span.kind'] IN ('LLM', '"LLM"')
    OR lower(trim(BOTH '"' FROM coalesce(
        nullIf(SpanAttributes['langfuse.observation.type'], ''),
        nullIf(SpanAttributes['langwatch.span.type'], ''),
        nullIf(SpanAttributes['langsmith.span.kind'], ''),
        nullIf(SpanAttributes['mlflow.spanType'], ''),
        nullIf(SpanAttributes['judgment.span_kind'], ''),
        nullIf(SpanAttributes['confident.span.type'], ''),
        nullIf(SpanAttributes['genkit:metadata:subtype'], ''),
        nullIf(SpanAttributes['neatlogs.span.kind'], ''),
        nullIf(SpanAttributes['honeyhive_event_type'], ''),
        nullIf(SpanAttributes['ag.type.node'], ''),
        nullIf(SpanAttributes['basalt.span.kind'], ''),
        SpanAttributes['ai.observability.span_type']
    ))) IN ('llm', 'chat_model', 'generation', 'model', 'chat', 'completion')
    OR endsWith(SpanAttributes['haystack.component.type'], 'Generator')
    OR mapContains(SpanAttributes, 'gen_ai.prompt.0.role')
    OR mapContains(SpanAttributes, 'gen_ai.prompt.0.content')
    OR mapContains(SpanAttributes, 'gen_ai.completion.0.role')
    OR mapContains(SpanAttributes, 'gen_ai.completion.0.content')
    OR mapContains(SpanAttributes, 'llm.prompts.0.role')
    OR mapContains(SpanAttributes, 'llm.prompts.0.content')
    OR mapContains(SpanAttributes, 'llm.completions.0.role')
    OR mapContains(SpanAttributes, 'llm.completions.0.content')
    OR SpanAttributes['mastra.span.type'] IN ('model_step', 'model_inference')
    OR (mapContains(SpanAttributes, 'llamaindex.run_id') AND hasAny(Events.Name, ['LLMChatStartEvent', 'LLMCompletionStartEvent']))
    OR (
        SpanName = 'call_llm'
        AND (
            mapContains(SpanAttributes, 'gcp.vertex.agent.llm_request')
            OR ScopeName IN ('gcp.vertex.agent', 'openinference.instrumentation.google_adk')
        )
    )
    OR (mapContains(SpanAttributes, 'provider') AND mapContains(SpanAttributes, 'function_input'))
    OR (SpanAttributes['type'] = 'llm' AND mapContains(SpanAttributes, 'status') AND mapContains(SpanAttributes, 'input'))
    OR SpanName = 'raw_gen_ai_request';

-- The current transitions of the model calls whose request named a model, with their episode's reward.
-- Joins: global.
SELECT
    t.episode_id AS episode_id, t.step AS step, t.span_id AS span_id, t.response_id AS response_id,
    t.policy_version AS policy_version, t.state AS state, t.tools AS tools, t.action AS action,
    t.tool_results AS tool_results, t.prompt_token_ids AS prompt_token_ids,
    t.response_token_ids AS response_token_ids, t.logprobs AS logprobs, t.is_trainable AS is_trainable,
    e.reward AS episode_reward
FROM transitions AS t
INNER JOIN (SELECT episode_id, revision, reward FROM episodes FINAL WHERE is_deleted = 0) AS e
    ON t.episode_id = e.episode_id AND t.revision = e.revision
WHERE t.span_id IN (SELECT SpanId FROM otel_traces WHERE GenAiOperation = 'chat' AND GenAiRequestModel = {model:String})
ORDER BY episode_id, step

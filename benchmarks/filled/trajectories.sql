-- One token row for each episode.
INSERT INTO trajectories (
    trajectory_id, episode_id, revision, row_number, task_id, group_id, agent_name, policy_version, first_step, last_step,
    row_start, prompt_token_ids, response_token_ids, loss_mask, logprobs, reward, is_trainable, untrainable_reason
)
WITH
    lower(hex(sipHash128('trace', number))) AS trace,
    concat(if(number % 10 = 0, 'test-', 'train-'), toString(number % 2000)) AS task
SELECT
    concat(trace, '/0'), trace, intDiv({base_ns:Int64} + number * {step_ns:Int64}, 1000) + 9000000, 0, task, task,
    concat('agent-', toString(number % 5)), concat('m@v', toString(1 + intDiv(number, 10000))), 0, 3, 'first', range(20),
    range(40), arrayMap(x -> x % 2, range(40)), arrayMap(x -> toFloat32(-0.1), range(40)), toFloat64(number % 2), true, ''
FROM numbers({first:UInt64}, {episodes:UInt64})

BEGIN TRANSACTION;
CREATE TABLE aliases (
	move_id INTEGER NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	alias VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	rolls_back_to VARCHAR(128) NOT NULL, 
	since BIGINT NOT NULL, 
	PRIMARY KEY (move_id)
);
INSERT INTO "aliases" VALUES(1,'tiny','champion',1,'',1);
CREATE TABLE canary_verdicts (
	canary VARCHAR(64) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (canary)
);
CREATE TABLE control_schema (
	name VARCHAR(32) NOT NULL, 
	version INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "control_schema" VALUES('control',5);
CREATE TABLE deployments (
	deployment_id INTEGER NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	deployed_at BIGINT NOT NULL, 
	job_id VARCHAR(64), 
	PRIMARY KEY (deployment_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id)
);
INSERT INTO "deployments" VALUES(1,'tiny',1,1,NULL);
CREATE TABLE jobs (
	job_id VARCHAR(64) NOT NULL, 
	spec TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	attempt INTEGER NOT NULL, 
	interruptions INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	started_at BIGINT, 
	finished_at BIGINT, 
	step INTEGER NOT NULL, 
	steps_total INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	model_version VARCHAR(128) NOT NULL, 
	lease_token BIGINT NOT NULL, 
	lease_owner VARCHAR(200) NOT NULL, 
	lease_until BIGINT, 
	runner VARCHAR(200) NOT NULL, 
	schedule_id VARCHAR(64), 
	fired_for BIGINT, 
	ran_s INTEGER DEFAULT '0' NOT NULL, 
	retries INTEGER DEFAULT '0' NOT NULL, 
	retry_at BIGINT, 
	PRIMARY KEY (job_id), 
	CONSTRAINT one_job_for_each_firing UNIQUE (schedule_id, fired_for)
);
INSERT INTO "jobs" VALUES('grpo-20261126-104446-bdd84034','{"kind":"grpo","base":"tiny","name":"","then":[],"held_out_share":0.1,"lora_rank":0,"lora_merge":true,"lora_alpha":32,"learning_rate":1e-6,"lr_scheduler_type":"constant","lr_warmup_steps":0,"weight_decay":0.0,"clip_grad":1.0,"steps":7,"batch_groups":8,"group_size":8,"max_passes":4.0,"kl_budget":0.1,"kl_coefficient":0.04,"epochs":1,"critic_learning_rate":0.00001,"gae_lambda":1.0,"max_prompt_tokens":4096,"max_response_tokens":4096,"credit":"broadcast","gamma":1.0,"loss_aggregation":"seq-mean-token-mean","micro_batch_tokens":null,"optimizer_dtype":"float32","offload":false,"seed":0,"preset":"any","device":"auto","backbone":"ray","ray_address":"","ranks":1,"deploy":false,"deploy_always":false,"pause_serving":false,"task_ids":[],"task_prefix":"","policy_version":"","since":null,"until":null,"services":[],"agents":[],"models":[],"failure_classes":[],"without_failure_classes":[],"marks":[],"without_marks":[],"selector":"","commit_minutes":0.0,"sample_rate":1.0,"repeats_per_task":2,"max_age_versions":8,"max_age_days":null,"max_episodes":100000,"min_reward":null,"max_reward":null,"outcomes":"successful","tokens":"any","dialogs":[],"min_pass_rate":null,"max_pass_rate":null,"curriculum":"none","coreset":"none","coreset_share":null,"coreset_size":null,"replay_ratio":null,"max_attempts":3,"max_runtime_minutes":null,"pair_margin":0.0,"pairs_per_group":4,"dpo_beta":0.1,"dpo_nll_weight":0.0,"min_entropy_share":0.05,"max_flat_batches":5,"stall_minutes":120.0}','queued',0,0,1795689886036600,NULL,NULL,0,0,'','',0,'',NULL,'',NULL,NULL,0,0,NULL);
CREATE TABLE leaders (
	name VARCHAR(32) NOT NULL, 
	owner VARCHAR(200) NOT NULL, 
	token BIGINT NOT NULL, 
	until BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE model_versions (
	name VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	parent VARCHAR(128) NOT NULL, 
	job_id VARCHAR(64), 
	created_at BIGINT NOT NULL, 
	details TEXT NOT NULL, 
	weights_sha256 VARCHAR(64) NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	PRIMARY KEY (name, number), 
	CONSTRAINT one_version_for_each_job UNIQUE (job_id)
);
INSERT INTO "model_versions" VALUES('tiny',1,'',NULL,1795689885934941,'{}','58a73a0d4e6f212eebad7d4384b0d1d1b5ec348a579d831c572c703f4f3dd0cb',30);
CREATE TABLE notices (
	notice_id INTEGER NOT NULL, 
	text TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	shown_at BIGINT, 
	PRIMARY KEY (notice_id)
);
INSERT INTO "notices" VALUES(1,'a schedule deploys by the rule',1,NULL);
CREATE TABLE promotion_decisions (
	decision_id INTEGER NOT NULL, 
	decided_at BIGINT NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	candidate VARCHAR(128) NOT NULL, 
	champion VARCHAR(128) NOT NULL, 
	rule TEXT NOT NULL, 
	verdict VARCHAR(16) NOT NULL, 
	evidence TEXT NOT NULL, 
	job_id VARCHAR(64), 
	PRIMARY KEY (decision_id)
);
INSERT INTO "promotion_decisions" VALUES(1,1,'tiny','tiny@v1','','','promoted','{}',NULL);
CREATE TABLE schedule_ticks (
	tick_id INTEGER NOT NULL, 
	schedule_id VARCHAR(64) NOT NULL, 
	ticked_at BIGINT NOT NULL, 
	times INTEGER NOT NULL, 
	verdict VARCHAR(16) NOT NULL, 
	reason TEXT NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	PRIMARY KEY (tick_id)
);
INSERT INTO "schedule_ticks" VALUES(1,'schedule-20261126-104446-c727cf3e',1,1,'waited','no new groups','');
CREATE TABLE schedules (
	schedule_id VARCHAR(64) NOT NULL, 
	spec TEXT NOT NULL, 
	cron VARCHAR(200) NOT NULL, 
	created_at BIGINT NOT NULL, 
	next_at BIGINT, 
	last_at BIGINT, 
	last_job_id VARCHAR(64) NOT NULL, 
	settings TEXT DEFAULT '{}' NOT NULL, 
	paused_at BIGINT, 
	PRIMARY KEY (schedule_id)
);
INSERT INTO "schedules" VALUES('schedule-20261126-104446-c727cf3e','{"kind":"sft","base":"tiny","name":"","then":[],"held_out_share":0.1,"lora_rank":0,"lora_merge":true,"lora_alpha":32,"learning_rate":0.00001,"lr_scheduler_type":"constant","lr_warmup_steps":0,"weight_decay":0.0,"clip_grad":1.0,"steps":10,"batch_groups":8,"group_size":8,"max_passes":4.0,"kl_budget":0.1,"kl_coefficient":0.0,"epochs":1,"critic_learning_rate":0.00001,"gae_lambda":1.0,"max_prompt_tokens":4096,"max_response_tokens":4096,"credit":"broadcast","gamma":1.0,"loss_aggregation":"seq-mean-token-sum-norm","micro_batch_tokens":null,"optimizer_dtype":"float32","offload":false,"seed":0,"preset":"any","device":"auto","backbone":"ray","ray_address":"","ranks":1,"deploy":true,"deploy_always":false,"pause_serving":false,"task_ids":[],"task_prefix":"","policy_version":"","since":null,"until":null,"services":[],"agents":[],"models":[],"failure_classes":[],"without_failure_classes":[],"marks":[],"without_marks":[],"selector":"","commit_minutes":0.0,"sample_rate":1.0,"repeats_per_task":2,"max_age_versions":null,"max_age_days":null,"max_episodes":100000,"min_reward":null,"max_reward":null,"outcomes":"successful","tokens":"any","dialogs":[],"min_pass_rate":null,"max_pass_rate":null,"curriculum":"none","coreset":"none","coreset_share":null,"coreset_size":null,"replay_ratio":null,"max_attempts":3,"max_runtime_minutes":null,"pair_margin":0.0,"pairs_per_group":4,"dpo_beta":0.1,"dpo_nll_weight":0.0,"min_entropy_share":0.05,"max_flat_batches":5,"stall_minutes":120.0}','0 3 * * *',1795689886459475,1795748400000000,NULL,'','{}',NULL);
CREATE INDEX jobs_by_state ON jobs (state, created_at);
CREATE INDEX aliases_by_name ON aliases (name, alias);
CREATE INDEX decisions_by_name ON promotion_decisions (name, decision_id);
CREATE INDEX ticks_by_schedule ON schedule_ticks (schedule_id, tick_id);
COMMIT;

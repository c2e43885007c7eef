-- The names of models in a service's requests, the most frequent ones first; empty where its spans do not record them.
SELECT topKIf(3)(GenAiRequestModel, IsModelCall AND GenAiRequestModel != '') AS names
FROM otel_traces
WHERE ServiceName = {service:String}

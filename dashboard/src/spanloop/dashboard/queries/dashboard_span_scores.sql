-- The scores of one span, and those of its trace that name no span.
SELECT scored_at, name, value, label, comment, source, if(span_id != '', 'this span', 'its trace') AS of
FROM scores FINAL
WHERE trace_id = {trace_id:String} AND span_id IN ({span_id:String}, '') AND is_deleted = 0
ORDER BY scored_at, score_id
LIMIT 200

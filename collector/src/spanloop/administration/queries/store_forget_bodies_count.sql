-- Number of dead letters whose bodies contain one of these byte strings (hex).
SELECT count() AS dead_letters
FROM dead_letters FINAL
WHERE arrayExists(needle -> position(tryBase64Decode(raw_base64), unhex(needle)) > 0, {needles:Array(String)})

-- How many dead letters have bodies with one of these texts, given as hex.
SELECT count() AS dead_letters
FROM dead_letters FINAL
WHERE arrayExists(needle -> position(tryBase64Decode(raw_base64), unhex(needle)) > 0, {needles:Array(String)})

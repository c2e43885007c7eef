-- Erase the dead letters whose bodies contain one of these byte strings (hex), including bodies without readable ids.
ALTER TABLE dead_letters DELETE
WHERE arrayExists(needle -> position(tryBase64Decode(raw_base64), unhex(needle)) > 0, {needles:Array(String)})
SETTINGS mutations_sync = 2

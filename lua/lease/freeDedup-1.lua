-- SPDX-License-Identifier: MIT
--[[ Free a deduplication id.   KEYS[1] de: of the id   ARGV[1] the job that must hold it, or empty = whoever does
     Returns 1, or 0 when nobody, or another job, holds it. ]]
if ARGV[1] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])

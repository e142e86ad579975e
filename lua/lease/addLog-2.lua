-- SPDX-License-Identifier: MIT
--[[ Add a line to the log of a job.   KEYS[1] row   KEYS[2] logs
     ARGV[1] line   ARGV[2] lines to keep, or empty
     Returns how many lines there are now, or -1 when there is no such job. ]]
local call, keep = redis.call, tonumber(ARGV[2]) or 0
if call('EXISTS', KEYS[1]) == 0 then
  return -1
end
local lines = call('RPUSH', KEYS[2], ARGV[1])
if keep <= 0 then
  return lines
end
call('LTRIM', KEYS[2], -keep, -1)
return math.min(keep, lines)

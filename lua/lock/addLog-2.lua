-- SPDX-License-Identifier: MIT
--[[ Add a row to a job's log.   KEYS[1] job   KEYS[2] logs
     ARGV[1] id   ARGV[2] row   ARGV[3] rows to keep, or empty
     Returns the number of rows, or -1 when there is no such job. ]]
local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then
  return -1
end
local rows = call('RPUSH', KEYS[2], ARGV[2])
local keep = tonumber(ARGV[3])
if not keep then
  return rows
end
call('LTRIM', KEYS[2], -keep, -1)
return math.min(keep, rows)

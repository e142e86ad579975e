-- SPDX-License-Identifier: MIT
--[[ Store the progress of a job and publish it.   KEYS[1] row
     ARGV[1] progress, a text   ARGV[2] id   ARGV[3] queue base
     Returns 1, or -1 when there is no such job. ]]
local call, base, loud = redis.call, ARGV[3], true
--- @include "lease_tell"
if call('EXISTS', KEYS[1]) == 0 then
  return -1
end
call('HSET', KEYS[1], 'progress', ARGV[1])
tell('progress', ARGV[2], 'progress', ARGV[1])
return 1

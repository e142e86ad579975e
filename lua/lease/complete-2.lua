-- SPDX-License-Identifier: MIT
--[[ Complete a held job.   KEYS[1] active   KEYS[2] row
     ARGV[1] id   ARGV[2] token   ARGV[3] queue base   ARGV[4] result for its parent; the id when left out
     Returns 1, or 0 when there is no such row. Refuses with EMQSTALE. ]]
local call, base, loud = redis.call, ARGV[3], false
--- @include "lease_end"
local job, why = held(ARGV[1], ARGV[2])
if why == 'gone' then
  return 0
elseif why then
  return redis.error_reply('EMQSTALE the token no longer holds the job')
end
complete(job, ARGV[4])
call('HINCRBY', base .. 'metrics:completed', 'count', '1')
return 1

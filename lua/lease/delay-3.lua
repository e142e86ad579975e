-- SPDX-License-Identifier: MIT
--[[ Run a held job again later: no error, and the attempt counts.   KEYS[1] row   KEYS[2] active   KEYS[3] schedule
     ARGV[1] id   ARGV[2] token   ARGV[3] `at` or `in`   ARGV[4] run-at ms of the caller, or ms from now
     ARGV[5] queue base
     Returns 1. Refuses with EMQKIND, and with EMQSTALE (`EMQSTALE gone` when there is no such row). ]]
local call, base, loud = redis.call, ARGV[5], false
--- @include "lease_admit"
--- @include "lease_clock"
--- @include "lease_settle"
if not is_job(ARGV[1]) then
  return redis.error_reply(WRONG_KIND)
end
local job, why = held(ARGV[1], ARGV[2])
if not job then
  local text = why == 'gone' and 'gone' or 'the token no longer holds the job'
  return redis.error_reply('EMQSTALE ' .. text)
end
leave(job)
schedule(job, ARGV[3] == 'at' and tonumber(ARGV[4]) or clock() + tonumber(ARGV[4]))
return 1

-- SPDX-License-Identifier: MIT
--[[ Record a failed run: again later, or dead at the cap.
     KEYS[1] active   KEYS[2] schedule   KEYS[3] dead   KEYS[4] row
     ARGV[1] id   ARGV[2] token   ARGV[3] delay ms   ARGV[4] most attempts   ARGV[5] error   ARGV[6] queue base
     Returns `scheduled` or `dead`. Refuses with EMQSTALE; a job that is gone says so in its text. ]]
local call, base, loud = redis.call, ARGV[6], false
--- @include "lease_clock"
--- @include "lease_settle"
local job, why = held(ARGV[1], ARGV[2])
if not job then
  local text = why == 'gone' and 'gone' or 'the token no longer holds the job'
  return redis.error_reply('EMQSTALE ' .. text)
end
return retry(job, tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], clock())

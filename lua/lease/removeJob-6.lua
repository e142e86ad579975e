-- SPDX-License-Identifier: MIT
--[[ Remove a job that nobody holds.
     KEYS[1] row   KEYS[2] pending   KEYS[3] active   KEYS[4] schedule   KEYS[5] dead
     KEYS[6] de: of the deduplication id, or any key of the queue when there is none
     ARGV[1] id   ARGV[2] deduplication id, or empty   ARGV[3] queue base
     Returns 1, or -1 when there is no such job. Refuses with EMQLOCK: a marker, or a lease that still runs. ]]
local call, base, loud, id = redis.call, ARGV[3], false, ARGV[1]
--- @include "lease_clock"
--- @include "lease_end"
local job = load_job(id)
if not job then
  return -1
end
local lease = tonumber(call('ZSCORE', KEYS[3], id)) or 0
if call('EXISTS', job.row .. ':lock') == 1 or call('HEXISTS', job.row, 'lock') == 1 or lease > clock() then
  return redis.error_reply('EMQLOCK a worker holds the job')
end
leave(job)
call('ZREM', KEYS[2], id)
call('ZREM', KEYS[4], id)
call('ZREM', KEYS[5], id)
if ARGV[2] ~= '' and call('GET', KEYS[6]) == id then
  call('DEL', KEYS[6])
end
remove_row(job)
return 1

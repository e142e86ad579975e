-- SPDX-License-Identifier: MIT
--[[ Admit a job that is due later.   KEYS[1] row   KEYS[2] schedule
     ARGV[1] id   ARGV[2] payload   ARGV[3] `at` or `in`   ARGV[4] run-at ms of the caller, or ms from now
     ARGV[5] queue base   ARGV[6] deduplication id, or empty   ARGV[7] ms that it lasts, or empty
     ARGV[8..] more fields and values
     Returns 1 (scheduled), 0 (duplicate), or the id that holds the deduplication id. Refuses with EMQKIND. ]]
local call, base = redis.call, ARGV[5]
--- @include "lease_admit"
--- @include "lease_clock"
--- @include "lease_due"
local refusal = admit(KEYS[1], ARGV[1], 'scheduled', ARGV[2], ARGV[6], ARGV[7], 8)
if refusal then
  return refusal
end
local at = tonumber(ARGV[4])
local due = digits(ARGV[3] == 'at' and at or clock() + at)
call('ZADD', KEYS[2], due, ARGV[1])
announce_job(ARGV[1], due)
return 1

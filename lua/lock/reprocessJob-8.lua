-- SPDX-License-Identifier: MIT
--[[ Let a finished job run again. Its priority is ignored; a parent that still exists waits for it again.
     KEYS[1] job   KEYS[2] events   KEYS[3] failed | completed   KEYS[4] wait   KEYS[5] meta   KEYS[6] paused (unused)
     KEYS[7] active   KEYS[8] marker
     ARGV[1] id   ARGV[2] LPUSH (back of the line) | RPUSH (front)   ARGV[3] failedReason | returnvalue
     ARGV[4] failed | completed   ARGV[5] 1 = forget the attempts made   ARGV[6] 1 = forget the attempts started
     Returns 1, -1 no such job, -3 not in that state. ]]
local call = redis.call
--- @include "default_cap"
--- @include "push_plain"
local job, meta_key, id = KEYS[1], KEYS[5], ARGV[1]
if call('EXISTS', job) == 0 then
  return -1
elseif call('ZREM', KEYS[3], id) == 0 then
  return -3
end
local forgotten = { 'finishedOn', 'processedOn', ARGV[3] }
if ARGV[5] == '1' then
  forgotten[#forgotten + 1] = 'atm'
end
if ARGV[6] == '1' then
  forgotten[#forgotten + 1] = 'ats'
end
call('HDEL', job, unpack(forgotten))
push_plain(ARGV[2], KEYS[4], meta_key, KEYS[7], KEYS[8], id)

local parent = call('HGET', job, 'parentKey')
if parent and call('EXISTS', parent) == 1 then
  local settled
  if ARGV[4] == 'failed' then
    settled = call('ZREM', parent .. ':unsuccessful', job) == 1 or call('HDEL', parent .. ':failed', job) == 1
  else
    settled = call('HDEL', parent .. ':processed', job) == 1
  end
  if settled then
    call('SADD', parent .. ':dependencies', job)
  end
end
local cap = call('HGET', meta_key, 'opts.maxLenEvents') or default_cap(meta_key)
call('XADD', KEYS[2], 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id, 'prev', ARGV[4])
return 1

-- SPDX-License-Identifier: MIT
--[[ Where a job is.
     KEYS[1] completed   KEYS[2] failed   KEYS[3] delayed   KEYS[4] active   KEYS[5] wait   KEYS[6] paused
     KEYS[7] waiting-children   KEYS[8] prioritized
     ARGV[1] id
     Returns completed, failed, delayed, prioritized, active, waiting, waiting-children or unknown. ]]
local call = redis.call
local id = ARGV[1]
if call('ZSCORE', KEYS[1], id) then
  return 'completed'
elseif call('ZSCORE', KEYS[2], id) then
  return 'failed'
elseif call('ZSCORE', KEYS[3], id) then
  return 'delayed'
elseif call('ZSCORE', KEYS[8], id) then
  return 'prioritized'
elseif call('LPOS', KEYS[4], id) then
  return 'active'
elseif call('LPOS', KEYS[5], id) or call('LPOS', KEYS[6], id) then
  return 'waiting'
elseif call('ZSCORE', KEYS[7], id) then
  return 'waiting-children'
end
return 'unknown'

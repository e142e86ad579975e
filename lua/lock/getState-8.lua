-- SPDX-License-Identifier: MIT
--[[ Where a job is, for servers without LPOS.
     KEYS[1] completed   KEYS[2] failed   KEYS[3] delayed   KEYS[4] active   KEYS[5] wait   KEYS[6] paused
     KEYS[7] waiting-children   KEYS[8] prioritized
     ARGV[1] id
     Returns completed, failed, delayed, prioritized, active, waiting, waiting-children or unknown. ]]
local call = redis.call
local id = ARGV[1]

local function lists(key)
  for _, member in ipairs(call('LRANGE', key, 0, -1)) do
    if member == id then
      return true
    end
  end
  return false
end

if call('ZSCORE', KEYS[1], id) then
  return 'completed'
elseif call('ZSCORE', KEYS[2], id) then
  return 'failed'
elseif call('ZSCORE', KEYS[3], id) then
  return 'delayed'
elseif call('ZSCORE', KEYS[8], id) then
  return 'prioritized'
elseif lists(KEYS[4]) then
  return 'active'
elseif lists(KEYS[5]) or lists(KEYS[6]) then
  return 'waiting'
elseif call('ZSCORE', KEYS[7], id) then
  return 'waiting-children'
end
return 'unknown'

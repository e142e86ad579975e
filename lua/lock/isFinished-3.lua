-- SPDX-License-Identifier: MIT
--[[ Has a job finished, and with what?   KEYS[1] completed   KEYS[2] failed   KEYS[3] job
     ARGV[1] id   ARGV[2] 1 = with the value
     Returns -1 no such job, 0 not yet, 1 completed, 2 failed; with the value a pair: the number and the return
     value, the reason, or (for -1) a sentence. ]]
local call = redis.call
local with_value = ARGV[2] == '1'
local function answer(code, value)
  if with_value then
    return { code, value }
  end
  return code
end
if call('EXISTS', KEYS[3]) == 0 then
  return answer(-1, 'There is no job at ' .. KEYS[3])
elseif call('ZSCORE', KEYS[1], ARGV[1]) then
  return answer(1, with_value and call('HGET', KEYS[3], 'returnvalue'))
elseif call('ZSCORE', KEYS[2], ARGV[1]) then
  return answer(2, with_value and call('HGET', KEYS[3], 'failedReason'))
end
return answer(0)

-- SPDX-License-Identifier: MIT
--[[ Count the children of a job.   KEYS[1] processed   KEYS[2] dependencies   KEYS[3] failed   KEYS[4] unsuccessful
     ARGV[1..] processed | unprocessed | ignored | failed
     Returns the counts, in the order asked. ]]
local call = redis.call
local counts = {}
for i = 1, #ARGV do
  local kind = ARGV[i]
  if kind == 'processed' then
    counts[i] = call('HLEN', KEYS[1])
  elseif kind == 'unprocessed' then
    counts[i] = call('SCARD', KEYS[2])
  elseif kind == 'ignored' then
    counts[i] = call('HLEN', KEYS[3])
  else
    counts[i] = call('ZCARD', KEYS[4])
  end
end
return counts

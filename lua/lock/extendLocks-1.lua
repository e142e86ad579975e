-- SPDX-License-Identifier: MIT
--[[ Renew many locks of one queue.   KEYS[1] stalled
     ARGV[1] key base   ARGV[2] msgpack array of tokens   ARGV[3] msgpack array of ids   ARGV[4] duration ms
     Returns the ids whose lock is missing or another's (empty: all renewed). ]]
local call = redis.call
local base, duration = ARGV[1], ARGV[4]
local tokens, ids = cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[3])
local failed, total = {}, #ids
-- The locks are read, and the stalled marks removed, with one command per slice; only the renewal is per lock.
for from = 1, total, 5000 do
  local to = math.min(from + 4999, total)
  local locks, renewed = {}, {}
  for i = from, to do
    locks[#locks + 1] = base .. ids[i] .. ':lock'
  end
  local held = call('MGET', unpack(locks))
  for i = from, to do
    local at, token = i - from + 1, tokens[i]
    if held[at] and held[at] == token then
      call('PEXPIRE', locks[at], duration)
      renewed[#renewed + 1] = ids[i]
    else
      failed[#failed + 1] = ids[i]
    end
  end
  if renewed[1] then
    call('SREM', KEYS[1], unpack(renewed))
  end
end
return failed

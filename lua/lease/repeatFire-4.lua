-- SPDX-License-Identifier: MIT
--[[
  Fires one due repeat, once: admits the given id with the template and sets the next time, if the time is still the
  one the caller read and has come. Periods that were missed are skipped.

  KEYS[1] repeat   KEYS[2] record   KEYS[3] row   KEYS[4] pending

  ARGV[1] queue base   ARGV[2] name   ARGV[3] the time read   ARGV[4] id   ARGV[5] next time, 0 = by `every_ms`
  ARGV[6..] more fields and values of the row

  Returns the next time in ms; 0: somebody else has fired it, it is not due, or the id is taken;
  -1: it is gone.
]]
local call, base = redis.call, ARGV[1]
--- @include "lease_admit"
--- @include "lease_clock"
--- @include "lease_ready"
local score, now = tonumber(call('ZSCORE', KEYS[1], ARGV[2])), clock()
local f = call('HMGET', KEYS[2], 'every_ms', 'template')
if not score or not f[2] then
  call('ZREM', KEYS[1], ARGV[2])
  return -1
end
if score ~= tonumber(ARGV[3]) or score > now then
  return 0
end
local following, every = tonumber(ARGV[5]), tonumber(f[1]) or 0
if following <= score then
  if every <= 0 then
    return redis.error_reply('EMQSTATE a repeat without a period needs its next time')
  end
  following = score + every * (math.floor((now - score) / every) + 1)
end
if not is_job(ARGV[4]) then
  return redis.error_reply(WRONG_KIND)
end
-- An id that is taken would cost the occurrence; the caller comes again with another.
if call('EXISTS', KEYS[3]) == 1 then
  return 0
end
call('ZADD', KEYS[1], digits(following), ARGV[2])
write_row(KEYS[3], 'pending', f[2], unpack(ARGV, 6))
put_ready(ARGV[4])
return following

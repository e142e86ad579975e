-- SPDX-License-Identifier: MIT
--[[ Pause or resume the queue.
     KEYS[1] wait   KEYS[2] paused (these two swapped when resuming)   KEYS[3] meta   KEYS[4] prioritized
     KEYS[5] events   KEYS[6] delayed   KEYS[7] marker
     ARGV[1] paused | resumed   ARGV[2] 0 = no event
     Returns how many ids an older version left in `paused`: call again with ARGV[2] = 0 until it is 0. ]]
local call = redis.call
local meta_key, marker, left = KEYS[3], KEYS[7], 0

local function resume()
  --- @include "mark_delayed"
  local from, wait = KEYS[1], KEYS[2]
  call('HDEL', meta_key, 'paused')
  if call('EXISTS', from) == 1 then
    if call('EXISTS', wait) == 0 then
      call('RENAME', from, wait)
    else
      call('RPUSH', wait, unpack(call('LRANGE', from, 0, 6999)))
      call('LTRIM', from, 7000, -1)
      left = call('LLEN', from)
    end
  end
  if call('EXISTS', wait, KEYS[4]) > 0 then
    call('ZADD', marker, '0', '0')
  else
    mark_delayed(marker, KEYS[6])
  end
end

if ARGV[1] == 'paused' then
  call('HSET', meta_key, 'paused', 1)
  call('DEL', marker)
else
  resume()
end
if ARGV[2] ~= '0' then
  call('XADD', KEYS[5], '*', 'event', ARGV[1])
end
return left

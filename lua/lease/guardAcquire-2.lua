-- SPDX-License-Identifier: MIT
--[[ Take a lock that nobody has.   KEYS[1] lock   KEYS[2] the last fencing number, of all locks beside it
     ARGV[1] token   ARGV[2] ms
     The lock then holds `<token>:<number>`.
     Returns the fencing number of this holding, which only grows, or 0 when somebody has the lock. ]]
local call, mine = redis.call, ARGV[1] .. ':'
local held = call('GET', KEYS[1])
if held then
  if string.sub(held, 1, #mine) ~= mine then
    return 0
  end
  -- Our own first try, whose reply was lost. Its time counts from now, as the holder believes.
  call('PEXPIRE', KEYS[1], ARGV[2])
  return tonumber(string.sub(held, #mine + 1))
end
local number = call('INCR', KEYS[2])
call('SET', KEYS[1], mine .. string.format('%.0f', number), 'PX', ARGV[2])
return number

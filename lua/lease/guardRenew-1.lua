-- SPDX-License-Identifier: MIT
--[[ Renew many locks, each if it is still its holder's.   KEYS[1] their fencing number, which names the slot
     ARGV[1] what the names of lock keys begin with   ARGV[2] msgpack array of [name, token, ms]
     Returns the tokens that were refused: those locks are gone or another's, and are not made again. ]]
local call, base, refused = redis.call, ARGV[1], {}
for _, row in ipairs(cmsgpack.unpack(ARGV[2])) do
  local key, mine = base .. row[1], row[2] .. ':'
  local held = call('GET', key)
  if held and string.sub(held, 1, #mine) == mine then
    call('PEXPIRE', key, row[3])
  else
    refused[#refused + 1] = row[2]
  end
end
return refused

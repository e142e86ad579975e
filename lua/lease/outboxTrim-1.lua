-- SPDX-License-Identifier: MIT
--[[ Drop delivered signals from the head of the outbox, as far as they still are there.   KEYS[1] outbox
     ARGV[1..] the signals, in their order
     Returns how many were dropped. ]]
local call = redis.call
for i, entry in ipairs(ARGV) do
  if call('LINDEX', KEYS[1], 0) ~= entry then
    return i - 1
  end
  call('LPOP', KEYS[1])
end
return #ARGV

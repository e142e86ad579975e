-- SPDX-License-Identifier: MIT
-- P.unlock: lets go of the lock if the token is the holder's; else answers -6 (another's) or -2 (no lock).
local function unlock(lock, token, stalled, id)
  if token == '0' then
    return nil
  end
  local held = call('GET', lock)
  if held ~= token then
    return held and -6 or -2
  end
  call('DEL', lock)
  call('SREM', stalled, id)
  return nil
end

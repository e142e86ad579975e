-- SPDX-License-Identifier: MIT
-- P.rate-ttl: ms until the rate window opens again, 0 when it is open. A counter without TTL never limits.
local function rate_ttl(limiter, max)
  if tonumber(max) > tonumber(call('GET', limiter) or 0) then
    return 0
  end
  local ttl = call('PTTL', limiter)
  if ttl == 0 then
    call('DEL', limiter)
  end
  return math.max(ttl, 0)
end

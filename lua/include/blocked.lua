-- SPDX-License-Identifier: MIT
-- P.blocked from values that the caller has read from meta: paused, or as many active jobs as allowed.
local function is_blocked(paused, concurrency, active)
  if paused then
    return true
  end
  return concurrency and call('LLEN', active) >= tonumber(concurrency)
end

-- SPDX-License-Identifier: MIT
--- @include "blocked"
-- P.blocked of a queue of which nothing has been read yet.
local function queue_blocked(meta_key, active)
  local meta = call('HMGET', meta_key, 'paused', 'concurrency')
  return is_blocked(meta[1], meta[2], active)
end

-- SPDX-License-Identifier: MIT
--- @include "queue_blocked"
-- P.mark0: tells sleeping workers that there may be work, unless none may be taken.
local function wake(meta_key, active, marker)
  if not queue_blocked(meta_key, active) then
    call('ZADD', marker, '0', '0')
  end
end

-- P.push: by LPUSH to the back of the line, by RPUSH to its front.
local function push_plain(command, wait, meta_key, active, marker, id)
  call(command, wait, id)
  wake(meta_key, active, marker)
end

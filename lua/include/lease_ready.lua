-- SPDX-License-Identifier: MIT
-- Puts a job where it is taken from: its lane, or pending. The caller writes the state.
--- @include "lease_lanes"
local function put_ready(id, group)
  if group then
    call('ZADD', lane_of(group), '0', id)
    ring_lane(group)
  else
    call('ZADD', base .. 'pending', '0', id)
    push_wake(1)
  end
end

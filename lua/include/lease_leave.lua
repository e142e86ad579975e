-- SPDX-License-Identifier: MIT
-- Takes a job out of active or, after a reap, out of its lane or pending, and keeps the count of its lane.
local function leave(job)
  local id, group = job.id, job.group
  local was_active = call('ZREM', base .. 'active', id) == 1
  if not group then
    if not was_active then
      call('ZREM', base .. 'pending', id)
    end
  else
    --- @include "lease_lanes"
    if was_active then
      discharge(group)
      ring_lane(group)
    else
      call('ZREM', lane_of(group), id)
      if call('EXISTS', lane_of(group)) == 0 then
        unring_lane(group)
      end
    end
  end
end

-- SPDX-License-Identifier: MIT
--- @include "each_batch"
-- P.metrics: closes a point for each minute that has passed. The job being counted belongs to the next point;
-- minutes without any job become zeros. Of several `jobs` that finish at once the first one is the one being counted.
local function count_metric(summary, points, max_points, now, jobs)
  local count = call('HINCRBY', summary, 'count', jobs) - jobs
  local last = call('HMGET', summary, 'prevTS', 'prevCount')
  if not last[1] then
    call('HSET', summary, 'prevTS', now, 'prevCount', 0)
    return
  end
  local minutes = math.floor(now / 60000) - math.floor(last[1] / 60000)
  minutes = math.min(minutes, max_points)
  if minutes < 1 then
    return
  end
  local values = { count - tonumber(last[2] or 0) }
  for i = 2, minutes do
    values[i] = 0
  end
  each_batch(values, function(...)
    call('LPUSH', points, ...)
  end)
  call('LTRIM', points, 0, max_points - 1)
  call('HSET', summary, 'prevCount', count, 'prevTS', now)
end

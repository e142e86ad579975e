-- SPDX-License-Identifier: MIT
-- The moment of a slot as it stands in ids and scores: whole digits, never 1.7e12.
local function slot_text(moment)
  return string.format('%.0f', moment)
end

-- P.every: the next slot of a fixed period and the phase of the series. Missed slots are skipped, not caught up.
local function next_every(previous, every, now, offset, start)
  local aligned = math.floor(now / every) * every + offset
  local moment
  if previous then
    moment = previous + every
    if moment < now then
      moment = aligned <= now and aligned + every or aligned
    end
  elseif start then
    moment = math.max(start, now)
  elseif offset > 0 then
    moment = aligned <= now and aligned + every or aligned
  else
    moment = now
  end
  moment = math.floor(moment)
  if offset ~= 0 then
    return moment, math.floor(offset)
  end
  return moment, math.floor(moment - math.floor(moment / every) * every)
end

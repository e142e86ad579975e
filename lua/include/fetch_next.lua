-- SPDX-License-Identifier: MIT
--- @include "blocked"
--- @include "promote"
--- @include "rate_ttl"
--- @include "take"
--- @include "pop"
-- P.fetch-next: `meta` is paused, concurrency, max and duration as read; nil says there is nothing at all.
local function fetch_next(base, wait, active, prioritized, events, limiter, delayed, counter, marker, meta, now, opts)
  local blocked = is_blocked(meta[1], meta[2], active)
  promote_due(base, wait, prioritized, events, delayed, counter, marker, blocked, tonumber(now))
  local limits = opts.limiter
  local max = meta[3] or limits and limits.max
  if max then
    local ttl = rate_ttl(limiter, max)
    if ttl > 0 then
      return { 0, 0, ttl, 0 }
    end
  end
  if blocked then
    return { 0, 0, 0, 0 }
  end
  local id = pop_job(wait, active, prioritized, counter)
  if id then
    local duration = limits and limits.duration or meta[4]
    return take_job(base, events, marker, limiter, id, now, max, duration, opts)
  end
  local first = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')
  if first[1] then
    return { 0, 0, 0, first[2] / 4096 }
  end
  return nil
end

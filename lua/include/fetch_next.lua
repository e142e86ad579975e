-- SPDX-License-Identifier: MIT
-- P.fetch-next: `meta` is paused, concurrency and max as read; `none_delayed` says that the caller knows `delayed` to be
-- empty. Nil says there is nothing at all. One function, and the rare branches make theirs when they run.
local function fetch_next(base, wait, active, prioritized, events, limiter, delayed, counter, marker, meta_key, meta,
  now, opts, none_delayed)
  local blocked = meta[1] or meta[2] and call('LLEN', active) >= tonumber(meta[2])
  local due = not none_delayed and call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  if due and due + 0 <= (now + 1) * 4096 - 1 then
    --- @include "promote"
    promote_due(base, wait, prioritized, events, delayed, counter, marker, blocked, tonumber(now))
    due = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  end
  local limits = opts.limiter
  local max = meta[3] or limits and limits.max
  if max then
    --- @include "rate_ttl"
    local ttl = rate_ttl(limiter, max)
    if ttl > 0 then
      return { 0, 0, ttl, 0 }
    end
  end
  if blocked then
    return { 0, 0, 0, 0 }
  end
  --- @include "pop"
  --- @include "take"
end

-- SPDX-License-Identifier: MIT
--- @include "enqueue"
-- P.dedup-drop-on-finish: a key with a running TTL outlives its job, one without goes with it.
local function release_dedup(base, deid, id)
  local key = base .. 'de:' .. deid
  local ttl = call('PTTL', key)
  if ttl == 0 or ttl == -1 and call('GET', key) == id then
    call('DEL', key)
  end
end

-- P.dedup-requeue: the latest add that came while the job ran (keepLastIfActive) becomes a job now.
local function requeue_parked(base, cap, deid, now)
  local parked_key = base .. 'dn:' .. deid
  local parked = call('HMGET', parked_key, 'name', 'data', 'opts', 'jid', 'pk', 'pd', 'pdk', 'rjk')
  if not parked[1] then
    return
  end
  local id = string.format('%.0f', call('INCR', base .. 'id'))
  id = parked[4] or id
  local opts = cjson.decode(parked[3])
  local de = opts.de or {}
  local ttl = tonumber(de.ttl or 0)
  if ttl > 0 and not de.keepLastIfActive then
    call('SET', base .. 'de:' .. deid, id, 'PX', ttl)
  else
    call('SET', base .. 'de:' .. deid, id)
  end
  enqueue(base, cap, id, parked[1], parked[2], opts, now, parked[5], parked[6], parked[8])
  if parked[7] then
    call('SADD', parked[7], base .. id)
  end
  call('DEL', parked_key)
end

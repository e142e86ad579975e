-- SPDX-License-Identifier: MIT
--- @include "delete_keys"
-- P.dedup: nil when the job may be stored, else the id of the job that owns the deduplication id.
local function add_deduplicated(de, key)
  local latest, ttl = de.keepLastIfActive, tonumber(de.ttl or 0)

  local function own(owner, ...)
    if ttl > 0 and not latest then
      return call('SET', key, owner, 'PX', ttl, ...)
    end
    return call('SET', key, owner, ...)
  end

  local function tell(owner, rejected)
    call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'deduplicated', 'jobId', owner,
      'deduplicationId', de.id, 'deduplicatedJobId', rejected)
  end

  -- P.dedup-park: the owner runs, so the newest add is kept for when it ends.
  local function park(owner)
    if not latest or not call('LPOS', base .. 'active', owner) then
      return false
    end
    local parked = base .. 'dn:' .. de.id
    call('DEL', parked)
    call('HSET', parked, 'name', name, 'data', ARGV[2], 'opts', cjson.encode(opts), 'jid', id)
    local extras = { pk = parent_key, pd = parent, pdk = args[6], rjk = args[8] }
    for field, value in pairs(extras) do
      if value then
        call('HSET', parked, field, value)
      end
    end
    call('PERSIST', key)
    tell(owner, id)
    return true
  end

  local function replace(owner)
    if call('ZREM', base .. 'delayed', owner) == 0 then
      park(owner)
      return owner
    end
    delete_job_keys(base .. owner)
    call('XADD', events, '*', 'event', 'removed', 'jobId', owner, 'prev', 'delayed')
    tell(id, owner)
    if ttl > 0 and not latest and not de.extend then
      call('SET', key, id, 'KEEPTTL')
    else
      own(id)
    end
    return nil
  end

  if own(id, 'NX') then
    return nil
  end
  local owner = call('GET', key)
  if de.replace and may_replace then
    return replace(owner)
  end
  if not park(owner) then
    if ttl > 0 and de.extend then
      own(owner)
    end
    tell(owner, id)
  end
  return owner
end

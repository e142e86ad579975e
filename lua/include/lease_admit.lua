-- SPDX-License-Identifier: MIT
-- The checks and the row of a new job. A refusal comes before any write: an error, 0 for a duplicate, or the id
-- that holds the deduplication id. `extra` is the place of the first field and value in ARGV after the usual ones.
local function is_job(id)
  return id:sub(1, 3) == 'JOB'
end
local WRONG_KIND = 'EMQKIND the id of a job starts with JOB'

local function write_row(row, state, payload, ...)
  call('HSET', row, 'state', state, 'attempts', '0', 'payload', payload, ...)
end

local function admit(row, id, state, payload, dedup, ttl, extra)
  if not is_job(id) then
    return redis.error_reply(WRONG_KIND)
  end
  if call('EXISTS', row) == 1 then
    return 0
  end
  if dedup and dedup ~= '' then
    local key = base .. 'de:' .. dedup
    local parked = call('GET', key)
    if parked then
      return parked
    end
    if tonumber(ttl) and tonumber(ttl) > 0 then
      call('SET', key, id, 'PX', ttl)
    else
      call('SET', key, id)
    end
    call('HSET', row, 'deid', dedup)
  end
  write_row(row, state, payload, unpack(ARGV, extra))
end

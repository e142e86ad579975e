-- SPDX-License-Identifier: MIT
--[[ Jobs of several states, by page.   KEYS[1] key base
     ARGV[1] first   ARGV[2] last   ARGV[3] 1 = oldest first   ARGV[4] windows to read at most   ARGV[5..] state names
     Returns per state an array of {id, flat hash}. Ids without a job are left out, and the page is filled up from
     what follows. ]]
local call = redis.call
local base, first, last, ascending = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local windows = tonumber(ARGV[4]) or 5
local lists = { wait = true, paused = true, active = true }

local function read_ids(state, from, to)
  local key = base .. state
  if not lists[state] then
    return call(ascending and 'ZRANGE' or 'ZREVRANGE', key, from, to)
  elseif not ascending then
    return call('LRANGE', key, from, to)
  end
  local newest_first = call('LRANGE', key, -1 - to, -1 - from)
  local ids = {}
  for i = #newest_first, 1, -1 do
    ids[#ids + 1] = newest_first[i]
  end
  return ids
end

local function read_page(state)
  local page, from, to = {}, first, last
  local size = last - first + 1
  local bounded = first >= 0 and last >= first
  for _ = 1, windows do
    local ids = read_ids(state, from, to)
    for i = 1, #ids do
      local job = call('HGETALL', base .. ids[i])
      if job[1] then
        page[#page + 1] = { ids[i], job }
        if bounded and #page == size then
          return page
        end
      end
    end
    if not bounded or #ids < size then
      break
    end
    from, to = from + size, to + size
  end
  return page
end

local found = {}
for i = 5, #ARGV do
  found[#found + 1] = read_page(ARGV[i])
end
return found

-- SPDX-License-Identifier: MIT
--[[ A page of a set or a hash.   KEYS[1] set or hash
     ARGV[1] first   ARGV[2] last, -1 = to the end   ARGV[3] cursor   ARGV[4] items already passed
     ARGV[5] scans at most   ARGV[6] given at all = the jobs, too
     Returns {cursor, passed, items, total[, jobs]}: to be called again with these until the cursor is 0 or the
     page full. Items of hashes are pairs. ]]
local call = redis.call
local key, first, last = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local cursor, passed, scans = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local kind = call('TYPE', key).ok
if kind == 'none' then
  return { 0, 0, {}, 0 }
elseif kind ~= 'set' and kind ~= 'hash' then
  return redis.error_reply('ERR ' .. key .. ' is a ' .. kind .. ', neither a set nor a hash')
end
local scan, step = 'SSCAN', 1
if kind == 'hash' then
  scan, step = 'HSCAN', 2
end
local total = call(kind == 'hash' and 'HLEN' or 'SCARD', key)
local items, jobs = {}, {}

local function visit(row, i)
  if passed >= first then
    items[#items + 1] = step == 2 and { row[i], row[i + 1] } or row[i]
    if ARGV[6] then
      jobs[#jobs + 1] = call('HGETALL', row[i])
    end
  end
  passed = passed + 1
end

repeat
  local answer = call(scan, key, cursor, 'COUNT', 100)
  cursor = answer[1]
  for i = 1, #answer[2], step do
    if last >= 0 and passed > last then
      break
    end
    visit(answer[2], i)
  end
  scans = scans - 1
until cursor == '0' or scans <= 0 or last >= 0 and passed > last
return { cursor, passed, items, total, jobs }

-- SPDX-License-Identifier: MIT
--[[ Set or take away the presence markers of held jobs. They make a removal refuse; they are not the lease.
     KEYS[1] active
     ARGV[1] queue base   ARGV[2] ms that they last, 0 = take them away   ARGV[3] 1 = as a field of the row, too
     ARGV[4] msgpack array of [id, token]
     Returns the ids that the token does not hold: for those nothing was written. ]]
local call, base, lasts, native = redis.call, ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local refused = {}
local function set(id, row, token)
  call('SET', row .. ':lock', token, 'PX', lasts)
  if native then
    call('HSET', row, 'lock', token)
    call('HPEXPIRE', row, lasts, 'FIELDS', '1', 'lock')
  end
end
local function clear(row, token)
  if call('GET', row .. ':lock') == token then
    call('DEL', row .. ':lock')
  end
  if call('HGET', row, 'lock') == token then
    call('HDEL', row, 'lock')
  end
end
for _, pair in ipairs(cmsgpack.unpack(ARGV[4])) do
  local id, token = pair[1], pair[2]
  local row = base .. 'job:' .. id
  if lasts == 0 then
    clear(row, token)
  elseif call('HGET', row, 'attempts') == token and call('ZSCORE', KEYS[1], id) then
    set(id, row, token)
  else
    refused[#refused + 1] = id
  end
end
return refused

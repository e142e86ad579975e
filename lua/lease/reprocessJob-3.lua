-- SPDX-License-Identifier: MIT
--[[ Give a dead job another life: a fresh budget of attempts and of stalls. Its token goes on growing.
     KEYS[1] row   KEYS[2] dead   KEYS[3] pending
     ARGV[1] id   ARGV[2] queue base
     Returns 1, or -1 when there is no such job. Refuses with EMQSTATE. ]]
local call, base = redis.call, ARGV[2]
--- @include "lease_ready"
local f = call('HMGET', KEYS[1], 'attempts', 'group')
if not f[1] then
  return -1
elseif call('ZREM', KEYS[2], ARGV[1]) == 0 then
  return redis.error_reply('EMQSTATE not dead')
end
call('HDEL', KEYS[1], 'last_error', 'stalled', 'stacktrace')
call('HSET', KEYS[1], 'state', 'pending', 'budget_base', f[1], 'spent', f[1])
put_ready(ARGV[1], f[2])
return 1

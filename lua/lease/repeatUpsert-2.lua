-- SPDX-License-Identifier: MIT
--[[ Make a repeat, or replace what is registered under its name. One that keeps its rule keeps its next time.
     KEYS[1] repeat   KEYS[2] record
     ARGV[1] name   ARGV[2] every ms, 0 = its times are computed by the caller   ARGV[3] template
     ARGV[4] first time in ms, 0 = now   ARGV[5] 1 = the first time holds although the rule is the same
     ARGV[6] queue base   ARGV[7] pattern, or empty   ARGV[8] its zone, or empty   ARGV[9..] more fields and values
     Returns the next time in ms. ]]
local call, base = redis.call, ARGV[6]
--- @include "lease_clock"
--- @include "lease_due"
local f = call('HMGET', KEYS[2], 'every_ms', 'pattern', 'tz')
local same = f[1] == ARGV[2] and (f[2] or '') == ARGV[7] and (f[3] or '') == ARGV[8]
local kept = ARGV[5] ~= '1' and same and call('ZSCORE', KEYS[1], ARGV[1])
local following = kept or (ARGV[4] == '0' and digits(clock()) or ARGV[4])
call('DEL', KEYS[2])
call('HSET', KEYS[2], 'every_ms', ARGV[2], 'template', ARGV[3], unpack(ARGV, 9))
if ARGV[7] ~= '' then
  call('HSET', KEYS[2], 'pattern', ARGV[7])
end
if ARGV[8] ~= '' then
  call('HSET', KEYS[2], 'tz', ARGV[8])
end
call('ZADD', KEYS[1], following, ARGV[1])
announce('due:repeat', following)
return tonumber(following)

-- SPDX-License-Identifier: MIT
-- "Delete the job's keys": these six. The lock is not among them; a finish that has checked its own passes it, which
-- saves a command.
local function delete_job_keys(job, ...)
  call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful',
    ...)
end

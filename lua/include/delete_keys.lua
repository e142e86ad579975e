-- SPDX-License-Identifier: MIT
-- "Delete the job's keys": these six, and answers how many there were. The lock is not among them; a finish that has
-- checked its own passes it, which saves a command.
local function delete_job_keys(job, ...)
  return call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed',
    job .. ':unsuccessful', ...)
end

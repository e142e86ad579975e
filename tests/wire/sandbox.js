// SPDX-License-Identifier: MIT
// A processor in a process of its own, as BullMQ starts it.
'use strict';
module.exports = async (job) => ({ pid: process.pid, give: job.data.give });

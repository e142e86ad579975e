// SPDX-License-Identifier: MIT
// BullMQ under Node as the other side of the wire: one JSON request a line in, one JSON reply a line out.
// Usage: node peer.js <package: bullmq-5 | bullmq-620 | bullmq-6> <port>
'use strict';
const readline = require('node:readline');
const bullmq = require(process.argv[2]);
const connection = { host: '127.0.0.1', port: Number(process.argv[3]), maxRetriesPerRequest: null };
const queues = new Map();
const workers = new Map();
const events = new Map();
let next = 0;

function queue({ name, prefix }) {
  const key = `${prefix}|${name}`;
  if (!queues.has(key)) {
    // A long stream: the tests count every event, and a trimmed one would be missed on a slow machine.
    const made = new bullmq.Queue(name, { connection, prefix, streams: { events: { maxLen: 500000 } } });
    made.on('error', () => {});
    queues.set(key, made);
  }
  return queues.get(key);
}

async function plain(job, state) {
  if (!job) return null;
  return {
    id: job.id, name: job.name, data: job.data, state: state ?? (await job.getState()), returnvalue: job.returnvalue,
    failedReason: job.failedReason, stacktrace: job.stacktrace, attemptsMade: job.attemptsMade,
    attemptsStarted: job.attemptsStarted, stalledCounter: job.stalledCounter, progress: job.progress,
    delay: job.delay, priority: job.priority, opts: job.opts, processedOn: job.processedOn,
    finishedOn: job.finishedOn, timestamp: job.timestamp, processedBy: job.processedBy,
  };
}

const behaviours = {
  echo: async (job) => ({ echo: job.data }),
  fail: async (job) => { throw new Error(`no luck with ${job.name}`); },
  failOnce: async (job) => {
    if (job.attemptsMade === 0) throw new Error('first time fails');
    return 'second time works';
  },
};

const verbs = {
  version: async () => require(`${process.argv[2]}/package.json`).version,
  add: async (a) => plain(await queue(a).add(a.job, a.data, a.opts)),
  addBulk: async (a) => (await queue(a).addBulk(a.jobs)).map((job) => job.id),
  job: async (a) => {
    // The state first: fields read before it could be older than the state that is shown with them.
    const state = await queue(a).getJobState(a.id);
    return plain(await queue(a).getJob(a.id), state);
  },
  jobs: async (a) => Promise.all((await queue(a).getJobs(a.states, a.start ?? 0, a.end ?? -1)).map((job) => plain(job))),
  counts: async (a) => queue(a).getJobCounts(),
  logs: async (a) => (await queue(a).getJobLogs(a.id)).logs,
  pause: async (a) => queue(a).pause(),
  resume: async (a) => queue(a).resume(),
  isPaused: async (a) => queue(a).isPaused(),
  retry: async (a) => (await queue(a).getJob(a.id)).retry(),
  remove: async (a) => queue(a).remove(a.id),
  promote: async (a) => (await queue(a).getJob(a.id)).promote(),
  workers: async (a) => queue(a).getWorkers(),
  upsertScheduler: async (a) => plain(await queue(a).upsertJobScheduler(a.id, a.repeat, a.template)),
  schedulers: async (a) => queue(a).getJobSchedulers(),
  removeScheduler: async (a) => queue(a).removeJobScheduler(a.id),
  setGlobalConcurrency: async (a) => queue(a).setGlobalConcurrency(a.n),
  startWorker: async (a) => {
    const worker = new bullmq.Worker(a.name, behaviours[a.behaviour], { connection, prefix: a.prefix, ...a.opts });
    worker.on('error', () => {});
    await worker.waitUntilReady();
    workers.set(++next, worker);
    return next;
  },
  stopWorker: async (a) => { await workers.get(a.worker).close(); workers.delete(a.worker); },
  listen: async (a) => {
    const reader = new bullmq.QueueEvents(a.name, { connection, prefix: a.prefix });
    reader.on('error', () => {});
    const seen = {};
    for (const name of ['added', 'waiting', 'active', 'completed', 'failed', 'delayed', 'progress', 'stalled',
      'retries-exhausted', 'removed', 'drained', 'duplicated', 'deduplicated', 'cancel']) {
      reader.on(name, (e) => { (seen[name] ??= []).push(e); });
    }
    await reader.waitUntilReady();
    events.set(++next, { reader, seen });
    return next;
  },
  seen: async (a) => (a.event ? events.get(a.listener).seen[a.event] ?? [] : events.get(a.listener).seen),
  seenCounts: async (a) => Object.fromEntries(
    Object.entries(events.get(a.listener).seen).map(([name, list]) => [name, list.length])),
  unlisten: async (a) => { await events.get(a.listener).reader.close(); events.delete(a.listener); },
  waitFor: async (a) => {
    const job = await queue(a).getJob(a.id);
    return job.waitUntilFinished(events.get(a.listener).reader, a.ttl ?? 20000);
  },
};

async function close() {
  for (const worker of workers.values()) await worker.close(true).catch(() => {});
  for (const { reader } of events.values()) await reader.close().catch(() => {});
  for (const made of queues.values()) await made.close().catch(() => {});
  process.exit(0);
}

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', async (line) => {
  const request = JSON.parse(line);
  let reply;
  try {
    reply = { id: request.id, ok: (await verbs[request.verb](request.args)) ?? null };
  } catch (error) {
    reply = { id: request.id, error: String(error && error.message ? error.message : error) };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
});
lines.on('close', close);

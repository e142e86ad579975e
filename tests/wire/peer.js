// SPDX-License-Identifier: MIT
// BullMQ under Node as the other side of the wire: one JSON request a line in, one JSON reply a line out.
// Usage: node peer.js <package: bullmq-5 | bullmq-620 | bullmq-6> <port> [<JSON file: script name -> replacement text>]
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');
const bullmq = require(process.argv[2]);
const foreign = [];
if (process.argv[4]) {
  // Before the first client is made: it takes the texts from these objects.
  const ours = JSON.parse(fs.readFileSync(process.argv[4], 'utf8'));
  const scripts = require(path.join(__dirname, 'node_modules', process.argv[2], 'dist/cjs/scripts'));
  for (const script of Object.values(scripts)) {
    if (ours[script.name]) script.content = ours[script.name];
    else foreign.push(script.name);
  }
}
const connection = { host: '127.0.0.1', port: Number(process.argv[3]), maxRetriesPerRequest: null };
const store = new (require('ioredis').Redis)(connection);
const queues = new Map();
const workers = new Map();
const events = new Map();
const held = new Map(); // jobs taken by hand
const told = new Map(); // what each worker has said of itself
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

async function strategies(opts) {
  return opts && opts.custom ? { ...opts, settings: { backoffStrategy: () => opts.custom } } : opts;
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

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const started = []; // every run of every worker of this process: id, name, wall ms

// What tests.wire.jobs does in our pool, the same in Node.
const deeds = {
  give: async (job) => { await sleep(job.data.ms ?? 0); return job.data.give; },
  fail: async (job) => {
    await sleep(job.data.ms ?? 0);
    if (job.attemptsMade < (job.data.fail_times ?? 99)) throw new Error(`planned failure of ${job.name}`);
    return { n: job.data.n };
  },
  talk: async (job) => {
    await job.updateProgress(job.data.progress);
    await job.log(job.data.row);
    await job.updateData({ ...job.data, updated: true });
    return 'talked';
  },
  limit: async (job, worker) => {
    if (job.attemptsStarted > 1) return 'limited once';
    await worker.rateLimit(job.data.limit_ms);
    throw bullmq.Worker.RateLimitError();
  },
  stuck: async () => new Promise(() => {}),
  // Moves by the job's own verbs, each with the error that tells the worker not to settle it.
  later: async (job, worker, token) => {
    if (job.attemptsStarted > 1) return 'later';
    await job.moveToDelayed(Date.now() + job.data.delay, token);
    throw new bullmq.DelayedError();
  },
  again: async (job, worker, token) => {
    if (job.attemptsStarted > 1) return 'again';
    await job.moveToWait(token);
    throw new bullmq.WaitingError();
  },
  never: async () => { throw new bullmq.UnrecoverableError('never'); },
  grow: async (job, worker, token) => {
    if (!job.data.grown) {
      await job.updateData({ ...job.data, grown: true });
      await queue({ name: worker.name, prefix: worker.opts.prefix }).add(
        'child', { give: 'grown' }, { parent: { id: job.id, queue: job.queueQualifiedName } });
    }
    if (await job.moveToWaitingChildren(token)) throw new bullmq.WaitingChildrenError();
    return Object.values(await job.getChildrenValues());
  },
  until: (job, worker, token, signal) => new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(new bullmq.UnrecoverableError(String(signal.reason ?? 'cancelled'))));
  }),
};

const behaviours = {
  play: async (job, worker, token) => {
    started.push({ id: job.id, name: job.name, at: Date.now() });
    return deeds[job.data.do ?? 'give'](job, worker, token);
  },
  stuck: async () => new Promise(() => {}),
  echo: async (job) => ({ echo: job.data }),
  fail: async (job) => { throw new Error(`no luck with ${job.name}`); },
  failOnce: async (job) => {
    if (job.attemptsMade === 0) throw new Error('first time fails');
    return 'second time works';
  },
};

const verbs = {
  foreign: async () => foreign,
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
  setGlobalRateLimit: async (a) => queue(a).setGlobalRateLimit(a.max, a.duration),
  obliterate: async (a) => queue(a).obliterate({ force: true }),
  drain: async (a) => queue(a).drain(true),
  clean: async (a) => queue(a).clean(0, 1000, a.state),
  changeDelay: async (a) => (await queue(a).getJob(a.id)).changeDelay(a.delay),
  changePriority: async (a) => (await queue(a).getJob(a.id)).changePriority(a),
  updateData: async (a) => (await queue(a).getJob(a.id)).updateData(a.data),
  workersCount: async (a) => queue(a).getWorkersCount(),
  scheduler: async (a) => queue(a).getJobScheduler(a.id),
  publish: async (a) => {
    const producer = new bullmq.QueueEventsProducer(a.name, { connection, prefix: a.prefix });
    await producer.publishEvent(a.event);
    await producer.close();
  },
  addFlow: async (a) => {
    const producer = new bullmq.FlowProducer({ connection, prefix: a.prefix });
    producer.on('error', () => {});
    const ids = (node) => ({ id: node.job.id, children: (node.children ?? []).map(ids) });
    const made = ids(await producer.add(a.flow, a.opts));
    await producer.close();
    return made;
  },
  family: async (a) => {
    const job = await queue(a).getJob(a.id);
    return { values: await job.getChildrenValues(), dependencies: await job.getDependenciesCount() };
  },
  // Any method of the queue, or of one of its jobs: for comparing what they answer and what they leave behind.
  queueCall: async (a) => queue(a)[a.method](...(a.args ?? [])),
  jobCall: async (a) => (await queue(a).getJob(a.id))[a.method](...(a.args ?? [])),
  getFlow: async (a) => {
    const producer = new bullmq.FlowProducer({ connection, prefix: a.prefix });
    producer.on('error', () => {});
    const ids = (node) => ({ id: node.job.id, children: (node.children ?? []).map(ids) });
    const found = await producer.getFlow({ id: a.id, queueName: a.name, prefix: a.prefix, ...a.opts });
    await producer.close();
    return found ? ids(found) : null;
  },
  started: async () => started,
  reset: async () => reset(),
  countsPerPriority: async (a) => queue(a).getCountsPerPriority(a.priorities),
  metrics: async (a) => queue(a).getMetrics(a.kind),
  rateLimitTtl: async (a) => queue(a).getRateLimitTtl(a.max),
  retryJobs: async (a) => queue(a).retryJobs({ state: a.state }),
  promoteJobs: async (a) => queue(a).promoteJobs(),
  removeDeduplicationKey: async (a) => queue(a).removeDeduplicationKey(a.key),
  removeOrphanedJobs: async (a) => queue(a).removeOrphanedJobs(),
  rateLimit: async (a) => queue(a).rateLimit(a.ms),
  isMaxed: async (a) => queue(a).isMaxed(),
  dependencies: async (a) => (await queue(a).getJob(a.id)).getDependencies({ processed: {}, unprocessed: {} }),
  removeUnprocessedChildren: async (a) => (await queue(a).getJob(a.id)).removeUnprocessedChildren(),
  removeChildDependency: async (a) => (await queue(a).getJob(a.id)).removeChildDependency(),
  page: async (a) => (await queue(a).getJobs(a.states, a.start, a.end, a.asc)).map((job) => job && job.id),
  isActive: async (a) => (await queue(a).getJob(a.id)).isActive(),
  startWorker: async (a) => {
    // The worker hands over an abort signal only to processors that declare it.
    const run = {
      sandbox: path.join(__dirname, 'sandbox.js'),
      until: (job, token, signal) => deeds.until(job, worker, token, signal),
    }[a.behaviour] ?? ((job, token) => behaviours[a.behaviour](job, worker, token));
    const worker = new bullmq.Worker(a.name, run, { connection, prefix: a.prefix, ...(await strategies(a.opts)) });
    const seen = [];
    worker.on('error', () => {});
    for (const name of ['active', 'completed', 'failed']) worker.on(name, (job) => seen.push([name, job && job.name]));
    await worker.waitUntilReady();
    workers.set(++next, worker);
    told.set(next, seen);
    return next;
  },
  told: async (a) => told.get(a.worker),
  workerCall: async (a) => workers.get(a.worker)[a.method](...(a.args ?? [])),
  // A queue with options of its own, and what is called on it.
  queueWith: async (a) => {
    const made = new bullmq.Queue(a.name, { connection, prefix: a.prefix, ...a.opts });
    await made.waitUntilReady();
    const answer = await made[a.method](...(a.args ?? []));
    await made.close();
    return answer && answer.id ? answer.id : answer;
  },
  // By hand: a worker without a processor, a job of its, and the job's own verbs.
  take: async (a) => {
    const worker = new bullmq.Worker(a.name, null, { connection, prefix: a.prefix, ...a.opts });
    worker.on('error', () => {});
    workers.set(++next, worker);
    const job = await worker.getNextJob(a.token, { block: false });
    if (job) held.set(job.id, job);
    return plain(job, 'active');
  },
  held: async (a) => {
    const answer = await held.get(a.id)[a.method](...(a.args ?? []));
    return answer === undefined || typeof answer === 'object' ? null : answer;
  },
  heldFail: async (a) => { await held.get(a.id).moveToFailed(new Error(a.reason), a.token, false); },
  sweepOnce: async (a) => {
    const worker = new bullmq.Worker(a.name, null, {
      connection, prefix: a.prefix, autorun: false, maxStalledCount: a.max, stalledInterval: a.interval });
    worker.on('error', () => {});
    await worker.waitUntilReady();
    workers.set(++next, worker);
    await worker.startStalledCheckTimer();
  },
  addFlows: async (a) => {
    const producer = new bullmq.FlowProducer({ connection, prefix: a.prefix });
    producer.on('error', () => {});
    const made = await producer.addBulk(a.flows);
    await producer.close();
    return made.map((node) => node.job.id);
  },
  stopWorker: async (a) => { await workers.get(a.worker).close(); workers.delete(a.worker); },
  listen: async (a) => {
    // A reader that starts at "now" has no position until its first read: it is told one.
    const [last] = await store.xrevrange(`${a.prefix}:${a.name}:events`, '+', '-', 'COUNT', 1);
    const reader = new bullmq.QueueEvents(
      a.name, { connection, prefix: a.prefix, lastEventId: a.from ?? (last ? last[0] : '0-0') });
    reader.on('error', () => {});
    const seen = {};
    for (const name of ['added', 'waiting', 'active', 'completed', 'failed', 'delayed', 'progress', 'stalled',
      'retries-exhausted', 'removed', 'drained', 'duplicated', 'deduplicated', 'debounced', 'paused', 'resumed',
      'waiting-children', 'cancel', ...(a.more ?? [])]) {
      reader.on(name, (e, id) => { (seen[name] ??= []).push({ ...e, eventId: id }); });
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

async function reset() {
  const open = [...workers.values()].map((worker) => worker.close(true));
  for (const { reader } of events.values()) open.push(reader.close());
  await Promise.allSettled(open);
  workers.clear();
  held.clear();
  told.clear();
  events.clear();
  started.length = 0;
}

async function close() {
  await reset();
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

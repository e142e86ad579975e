// SPDX-License-Identifier: MIT
// BullMQ under Node: the same verbs and the same jobs as the Python adapters (common.py says what they do).
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const { Queue, Worker } = require(process.env.BENCH_BULLMQ || 'bullmq-6');

const url = new URL(process.env.BENCH_URL);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const folder = process.env.BENCH_DIR;
const quickest = process.env.BENCH_QUICKEST === '1';
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

let file = -1;
let count = 0n;
let first = 0n;
const row = Buffer.alloc(24);

function tick() {
  const now = process.hrtime.bigint(); // CLOCK_MONOTONIC, as Python's
  if (file < 0) {
    file = fs.openSync(path.join(folder, `tick-${process.pid}`), 'w', 0o600);
    first = now;
  }
  count += 1n;
  row.writeBigUInt64LE(count, 0);
  row.writeBigUInt64LE(first, 8);
  row.writeBigUInt64LE(now, 16);
  fs.writeSync(file, row, 0, 24, 0);
}

function burn() {
  const start = process.cpuUsage();
  for (;;) {
    const used = process.cpuUsage(start);
    if (used.user + used.system >= 2000) return;
  }
}

const wallNs = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n;
const append = (name, line) => fs.appendFileSync(path.join(folder, name), `${line}\n`);

async function work(job) {
  if (job.name === 'noop') return tick();
  if (job.name === 'io') { await sleep(50); return tick(); }
  if (job.name === 'cpu') { burn(); return tick(); }
  if (job.name === 'mark') return append('latency', String(wallNs() - BigInt(job.data.at)));
  append('started', `${job.data.key} ${process.pid} ${process.hrtime.bigint()}`);
  return sleep(job.data.s * 1000);
}

function startWorker() {
  const concurrency = Number(process.env.BENCH_CONCURRENCY || 32);
  const quick = quickest ? { lockDuration: 1000, stalledInterval: 1000 } : {};
  const worker = new Worker('bench', work, { connection, concurrency, maxStalledCount: 100, ...quick });
  worker.on('error', () => {});
}

const numbers = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

const verbs = {
  async bulk(queue, kind, total) {
    for (let n = 0; n < Number(total); n += 1000) {
      await queue.addBulk(numbers(n, Math.min(n + 1000, Number(total))).map((i) => ({ name: kind, data: { n: i } })));
    }
  },
  async one(queue, kind, total) {
    for (let n = 0; n < Number(total); n += 1) await queue.add(kind, { n });
  },
  async timed(queue, total, gapMs) {
    for (let n = 0; n < Number(total); n += 1) {
      await queue.add('mark', { at: String(wallNs()) });
      await sleep(Number(gapMs));
    }
  },
  async hold(queue, key, seconds) { await queue.add('hold', { key, s: Number(seconds) }); },
};

async function main([verb, ...args]) {
  if (verb === 'work') return startWorker();
  if (verb === 'describe') {
    const [, processes, concurrency] = args;
    const commands = numbers(0, Number(processes)).map(() => [process.execPath, __filename, 'work']);
    const extra = quickest ? ', lock and stalled interval 1 s' : '';
    const settings = `${processes} processes × concurrency ${concurrency}, ioredis${extra}`;
    return console.log(JSON.stringify({ commands, settings }));
  }
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  const began = performance.now();
  await verbs[verb](queue, ...args);
  console.log(JSON.stringify({ seconds: (performance.now() - began) / 1000 }));
  return queue.close();
}

main(process.argv.slice(2)).catch((error) => { console.error(error); process.exit(1); });

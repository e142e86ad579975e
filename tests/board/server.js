// SPDX-License-Identifier: MIT
// The web board on loopback, pointed at queues of one server. Prints its port once it listens; ends with stdin.
// Usage: node server.js <port of the Redis server> <prefix> <queue> [<queue> ...]
'use strict';
const { createBullBoard } = require('@bull-board/api');
const { BullMQAdapter } = require('@bull-board/api/bullMQAdapter');
const { ExpressAdapter } = require('@bull-board/express');
const { Queue } = require('bullmq');
const express = require('express');

const [port, prefix, ...names] = process.argv.slice(2);
const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null };
const queues = names.map((name) => new BullMQAdapter(new Queue(name, { connection, prefix })));
const serverAdapter = new ExpressAdapter();
createBullBoard({ queues, serverAdapter, options: { uiConfig: { boardTitle: 'echomq-pool' } } });
const app = express();
app.use('/', serverAdapter.getRouter());
const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.resume().on('end', () => process.exit(0));

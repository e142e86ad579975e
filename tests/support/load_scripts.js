// SPDX-License-Identifier: MIT
// Has a server load the scripts of an installed BullMQ, and prints {name: {keys, sha}}. They are called by hash
// only, as black boxes whose effects ours are compared with.
const [folder, port] = process.argv.slice(2);
const fs = require('fs');
const path = require('path');
const Redis = require(path.join(folder, '..', 'ioredis'));

async function main() {
  const client = new Redis({ port: Number(port) });
  const scripts = path.join(folder, 'dist', 'cjs', 'scripts');
  const found = {};
  for (const file of fs.readdirSync(scripts)) {
    if (!file.endsWith('.js') || file === 'index.js') continue;
    for (const item of Object.values(require(path.join(scripts, file)))) {
      if (item && item.content) {
        found[item.name] = { keys: item.keys, sha: await client.script('LOAD', item.content) };
      }
    }
  }
  console.log(JSON.stringify(found));
  client.disconnect();
}

main();

// The report pipe for reporters in JavaScript: lines with a keyed tag whose key is thrown away after use.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const { createHmac } = require('node:crypto');

const numbers = (process.env.PAIRTRIAL_PIPES || '').split(',').map(Number);
delete process.env.PAIRTRIAL_PIPES;
const pid = process.pid;
const writeSync = fs.writeSync.bind(fs);
const stringify = JSON.stringify;
const digest = (key, data) => createHmac('sha256', key).update(data).digest();

const gift = JSON.parse(fs.readFileSync(numbers[1], 'utf8'));
fs.closeSync(numbers[1]);
let key = Buffer.from(gift.key, 'hex');
delete gift.key;
const root = fs.realpathSync(process.cwd());

function say(...record) {
  if (process.pid !== pid) return;
  const payload = Buffer.from(stringify(record), 'utf8');
  const tag = digest(key, payload).subarray(0, 16).toString('hex');
  key = digest(key, 'next');
  let rest = Buffer.concat([payload, Buffer.from(`\t${tag}\n`)]);
  while (rest.length) rest = rest.subarray(writeSync(numbers[0], rest));
}

// A file's path relative to the workspace, whatever links lead to it.
const known = new Map();
function relative(file) {
  if (!file) return '';
  if (file.startsWith('file://')) file = require('node:url').fileURLToPath(file);
  let found = known.get(file);
  if (found === undefined) {
    const whole = path.resolve(root, file);
    let place = whole;
    try { place = fs.realpathSync(whole); } catch { /* gone: keep the name it had */ }
    found = path.relative(root, place).split(path.sep).join('/');
    known.set(file, found);
  }
  return found;
}

// Records are held back until the end of a file, so that equal titles can be told apart by their order in it.
const files = new Map();
function hold(file, titles, outcome) {
  if (!files.has(file)) files.set(file, []);
  files.get(file).push([titles.join(' > '), outcome]);
}
function release() {
  for (const [file, rows] of files) {
    const total = new Map();
    for (const [title] of rows) total.set(title, (total.get(title) || 0) + 1);
    const seen = new Map();
    for (const [title, outcome] of rows) {
      const count = (seen.get(title) || 0) + 1;
      seen.set(title, count);
      const id = `${file}::${title}`;
      say('r', total.get(title) > 1 ? `${id} #${count}` : id, outcome);
    }
  }
  files.clear();
}

module.exports = { gift, say, hold, release, relative };

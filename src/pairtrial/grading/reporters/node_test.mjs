// Reporter for node:test. Runs in the parent of the test files' processes.
import { createRequire } from 'node:module';
const { say, hold, release, relative } = createRequire(import.meta.url)('./channel.cjs');

function outcomeOf(type, data) {
  if (data.skip !== undefined && data.skip !== false) return 'skipped';
  if (data.todo !== undefined && data.todo !== false) return 'todo';
  return type === 'test:pass' ? 'passed' : 'failed';
}

export default async function* report(source) {
  say('hello', `node ${process.version}`);
  const parents = new Map();
  let failed = 0;
  for await (const { type, data } of source) {
    if (type === 'test:start') {
      const file = relative(data.file);
      const chain = parents.get(file) || [];
      chain.length = data.nesting;
      chain[data.nesting] = data.name;
      parents.set(file, chain);
    } else if (type === 'test:pass' || type === 'test:fail') {
      const file = relative(data.file);
      if (type === 'test:fail') failed += 1;
      const chain = [...(parents.get(file) || [])].slice(0, data.nesting);
      // The record of a whole file carries its path as a name.
      const whole = data.nesting === 0 && relative(data.name) === file;
      if (whole && type === 'test:fail') say('collect', file, 'failed');
      else if (whole) hold(file, ['(file)'], outcomeOf(type, data));
      else if (data.details?.type !== 'suite') hold(file, [...chain, data.name], outcomeOf(type, data));
      else if (type === 'test:fail' && data.details?.error?.failureType !== 'subtestsFailed') {
        say('collect', `${file}::${[...chain, data.name].join(' > ')}`, 'failed');
      }
    }
  }
  release();
  say('end', null, failed);
  yield '';
}

// Reporter for vitest 3 and 4. Runs in the main process; the tests run in workers.
import { createRequire } from 'node:module';
const { say, hold, release, relative } = createRequire(import.meta.url)('./channel.cjs');

function outcomeOf(test) {
  const { state } = test.result();
  const { mode, fails } = test.options;
  if (mode === 'todo') return 'todo';
  if (state === 'skipped' || state === 'pending') return 'skipped';
  if (fails) return state === 'passed' ? 'xfailed' : 'failed';
  if (state === 'passed' && (test.diagnostic()?.retryCount ?? 0) > 0) return 'rerun';
  return state === 'passed' ? 'passed' : 'failed';
}

function titles(test) {
  const found = [];
  for (let item = test; item && item.type !== 'module'; item = item.parent) found.unshift(item.name);
  return found;
}

export default class Reporter {
  onInit(vitest) {
    say('hello', `vitest ${vitest.version}`, `node ${process.version}`);
  }

  onTestRunEnd(modules, errors) {
    for (const module of modules) {
      const file = relative(module.moduleId);
      if (module.errors().length) say('collect', file, 'failed');
      for (const test of module.children.allTests()) hold(file, titles(test), outcomeOf(test));
    }
    release();
    say('end', null, errors.length);
  }
}

// Reporter for mocha, which runs it in the process of the tests. Loaded before the first test file.
'use strict';
const { say, hold, release, relative } = require('./channel.cjs');

module.exports = class Reporter {
  constructor(runner) {
    let failed = 0;
    const put = (test, outcome) => hold(relative(test.file), test.titlePath(), outcome);
    say('hello', `node ${process.version}`);
    runner.on('pass', (test) => put(test, (test.currentRetry?.() ?? 0) > 0 ? 'rerun' : 'passed'));
    runner.on('pending', (test) => put(test, 'skipped'));
    runner.on('fail', (test) => {
      failed += 1;
      // A hook that fails takes the rest of its suite with it.
      if (test.type === 'hook') say('collect', suiteOf(test), 'failed');
      else put(test, 'failed');
    });
    runner.on('end', () => {
      release();
      say('end', null, failed);
    });
  }
};

function suiteOf(hook) {
  const titles = hook.parent.titlePath();
  const file = relative(hook.file || hook.parent.file);
  return titles.length ? `${file}::${titles.join(' > ')}` : file;
}

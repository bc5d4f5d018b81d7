// Reporter for jest. Runs in the main process; the tests run in workers or in contexts of their own.
'use strict';
const { say, hold, release, relative } = require('./channel.cjs');

const OUTCOMES = { passed: 'passed', failed: 'failed', pending: 'skipped', skipped: 'skipped', disabled: 'skipped', todo: 'todo' };

function outcomeOf(item) {
  if (item.status === 'passed' && item.failing) return 'xfailed';
  if (item.status === 'passed' && (item.invocations || 1) > 1) return 'rerun';
  return OUTCOMES[item.status] || 'error';
}

class Reporter {
  onRunStart() {
    say('hello', `node ${process.version}`);
  }

  onTestResult(test, result) {
    const file = relative(result.testFilePath || test.path);
    if (result.testExecError || (result.failureMessage && result.testResults.length === 0)) say('collect', file, 'failed');
    if (result.skipped) say('collect', file, 'skipped');
    for (const item of result.testResults) {
      hold(file, [...item.ancestorTitles, item.title], outcomeOf(item));
    }
  }

  onRunComplete(_, results) {
    release();
    say('end', null, results.numFailedTests);
  }
}

module.exports = Reporter;

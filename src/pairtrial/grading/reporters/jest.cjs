// Reporter for jest. Runs in the main process; the tests run in workers or in contexts of their own.
'use strict';
const { say, hold, release, relative } = require('./channel.cjs');

const OUTCOMES = { passed: 'passed', failed: 'failed', pending: 'skipped', skipped: 'skipped', disabled: 'skipped', todo: 'todo' };

class Reporter {
  onRunStart() {
    say('hello', `node ${process.version}`);
  }

  onTestResult(test, result) {
    const file = relative(result.testFilePath || test.path);
    if (result.testExecError || (result.failureMessage && result.testResults.length === 0)) say('collect', file, 'failed');
    if (result.skipped) say('collect', file, 'skipped');
    for (const item of result.testResults) {
      const rerun = item.status === 'passed' && (item.invocations || 1) > 1;
      hold(file, [...item.ancestorTitles, item.title], rerun ? 'rerun' : OUTCOMES[item.status] || 'error');
    }
  }

  onRunComplete(_, results) {
    release();
    say('end', null, results.numFailedTests);
  }
}

module.exports = Reporter;

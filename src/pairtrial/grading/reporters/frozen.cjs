// What Node's own tests assert with and are declared with stays as it is. Loaded by every
// process of Node before the first file of the workspace.
'use strict';
const assert = require('node:assert');

for (const module of [assert, assert.strict, require('node:test')]) {
  for (const [name, held] of Object.entries(Object.getOwnPropertyDescriptors(module))) {
    // New names may still be added; getters keep their way of being made at first use.
    if (held.configurable) Object.defineProperty(module, name, 'value' in held ? { writable: false, configurable: false } : { configurable: false });
  }
}

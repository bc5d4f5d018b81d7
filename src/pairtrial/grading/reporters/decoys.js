// Two tests for the end of a test file: one must pass because wrong values fail, one must fail on a wrong value.
// Sent as one line, with its names filled in; it has to read as a script, as a module and as TypeScript.
;{
  const own = typeof require === 'function' ? require : undefined;
  const load = (name) => own?.(name) ?? globalThis.process?.getBuiltinModule?.(name);
  const chai = () => { try { return (own ?? load('node:module').createRequire(globalThis.process.cwd() + '/x'))('chai'); } catch { return undefined; } };
  const test = $test;
  const differ = { equal: [$left, $right], strictEqual: [$left, $right], notEqual: [$left, $left], notStrictEqual: [$left, $left], deepEqual: [{ x: [$left] }, { x: [$right] }], deepStrictEqual: [{ x: [$left] }, { x: [$right] }], notDeepEqual: [[$left], [$left]], notDeepStrictEqual: [[$left], [$left]], ok: [0], isOk: [0], isTrue: [false], isFalse: [true], isNull: [$left], isUndefined: [$left], isDefined: [undefined], throws: [() => {}], doesNotThrow: [() => { throw new Error('$right'); }], match: ['$left', /x/], doesNotMatch: ['x', /x/], include: [[$left], $right], lengthOf: [[$left], 2], instanceOf: [{}, Map], typeOf: [$left, 'string'], isAbove: [1, 2], property: [{}, 'x'] };
  const expected = { toBe: [$left, $right], toEqual: [{ x: [$left] }, { x: [$right] }], toStrictEqual: [{ x: [$left] }, { x: [$right] }], toMatchObject: [{ x: $left }, { x: $right }], toContain: [[$left], $right], toContainEqual: [[[$left]], [$right]], toHaveLength: [[$left], 2], toMatch: ['$left', 'x'], toThrow: [() => {}], toBeTruthy: [0], toBeFalsy: [$left], toBeNull: [$left], toBeUndefined: [$left], toBeDefined: [undefined], toBeNaN: [$left], toBeGreaterThan: [1, 2], toBeGreaterThanOrEqual: [1, 2], toBeLessThan: [2, 1], toBeLessThanOrEqual: [2, 1], toBeCloseTo: [1, 2], toBeInstanceOf: [{}, Map], toHaveProperty: [{}, 'x'] };
  const asserts = (it) => it ? [...(typeof it === 'function' ? [() => it(false)] : []), ...Object.entries(differ).filter(([name]) => typeof it[name] === 'function').map(([name, values]) => () => it[name](...values))] : [];
  const expects = (it) => {
    if (typeof it !== 'function') return [];
    const sample = it($left);
    return [
      ...Object.entries(expected).filter(([name]) => name in sample).map(([name, [value, ...rest]]) => () => it(value)[name](...rest)),
      ...('toBe' in sample ? [() => it($left).not.toBe($left), () => it([$left]).not.toEqual([$left])] : []),
      ...('to' in sample ? [() => it($left).to.equal($right), () => it({ x: [$left] }).to.eql({ x: [$right] }), () => it($left).to.not.equal($left), () => it(false).to.be.ok, () => it(() => {}).to.throw()] : []),
    ];
  };
  const wrong = (context) => [
    () => { throw new Error('$left'); },
    ...[load('node:assert'), load('assert'), load('node:assert/strict')].flatMap(asserts), ...asserts(context?.assert), ...asserts($assert_), ...expects($expect),
    ...($chai ? [...asserts(chai()?.assert), ...expects(chai()?.expect)] : []),
  ];
  test($good, function () { for (const call of wrong(arguments[0])) { let passes = true; try { call(); } catch { passes = false; } if (passes) throw new Error('a wrong value passes: ' + call); } });
  test($bad, function () { const calls = wrong(arguments[0]); calls[$seed % calls.length](); });
}

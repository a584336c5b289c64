// Packages are installed beside the build, not beside these files: Node looks for packages only in the folders above a
// module, so they are asked for by the folder that ./dev has put them in.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const folder = process.env.LUMPSCOPE_BROWSER_TOOLS;
if (!folder) {
  throw new Error('LUMPSCOPE_BROWSER_TOOLS is not set: start this with TARGET/tools/bin/browser-node');
}
const require = createRequire(`${folder}/`);

/** @type {typeof import('playwright-core')} */
export const playwright = require('playwright-core');

/** Source of axe, to be run inside a page. */
export const axeSource = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

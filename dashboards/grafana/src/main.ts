// node main.js write|check ROOT: makes the dashboards, writes them or compares them with the committed ones, and
// checks them. ROOT is the folder of the repository.

import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { type Plan, assemble } from './build.js';
import { check } from './check.js';
import { compare } from './compare.js';
import { engine } from './engine.js';
import { observer } from './observer.js';
import { overview } from './overview.js';
import { seek } from './seek.js';
import { stable } from './stable.js';
import { typed } from './typed.js';

const PLANS: Plan[] = [overview, seek, compare, engine, observer];

/** Every file that is made: path below dashboards/grafana and text. */
function files(): Map<string, string> {
  const made = new Map<string, string>();
  const absent = new Map<string, string>();
  for (const plan of PLANS) {
    made.set(`dashboards/${plan.uid}.json`, stable(assemble(plan)));
    for (const query of plan.rows.flatMap((row) => row.panels).flatMap((panel) => panel.queries)) {
      if (query.absent) absent.set(query.expr, query.absent);
    }
  }
  made.set('absent.json', stable(Object.fromEntries(absent)));
  return made;
}

/** What differs between the committed files and those that are made now. */
function differences(folder: string, made: Map<string, string>): string[] {
  const committed = readdirSync(join(folder, 'dashboards')).map((name) => `dashboards/${name}`);
  const stray = committed.filter((path) => !made.has(path)).map((path) => `${path}: nothing makes it`);
  const stale = [...made]
    .filter(([path, text]) => read(join(folder, path)) !== text)
    .map(([path]) => `${path}: not what the source makes; run ./dev dashboards`);
  return [...stray, ...stale];
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

function main(mode: string | undefined, root: string | undefined, typesTo: string | undefined): number {
  if ((mode !== 'write' && mode !== 'check') || !root || !typesTo) {
    console.error('usage: main.js write|check ROOT FILE_FOR_TYPES');
    return 2;
  }
  const folder = join(root, 'dashboards/grafana');
  const made = files();
  if (mode === 'write') {
    mkdirSync(join(folder, 'dashboards'), { recursive: true });
    made.forEach((text, path) => writeFileSync(join(folder, path), text));
  }
  const wrong = [...differences(folder, made), ...check(root, made)];
  wrong.forEach((line) => console.error(line));
  writeFileSync(typesTo, typed(made));
  if (wrong.length === 0) console.log(`${made.size} files are as they should be`);
  return wrong.length === 0 ? 0 : 1;
}

process.exitCode = main(...(process.argv.slice(2) as [string?, string?, string?]));

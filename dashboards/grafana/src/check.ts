// Rules that hold for every dashboard.

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import type * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';
import * as units from '@grafana/grafana-foundation-sdk/units';

import { type Metric, documented, recorded, seriesOf } from './catalogue.js';
import { mark, misshown } from './grafana.js';
import { ask } from './promql.js';
import { UNUSED } from './unused.js';

const UNITS = new Set<unknown>(Object.values(units));
/** Data sources by uid: what the reader chooses, and those of provisioning/datasources. */
const SOURCES = new Set(['${datasource}', 'prometheus', 'traces']);
/** Variables that Grafana knows without a definition. */
const BUILT_IN = /^__/;
const COLUMNS = 24;

interface Target {
  expr?: string;
  legendFormat?: string;
  datasource?: { uid?: string };
}
type Panel = Omit<dashboard.Panel, 'targets'> & { targets?: Target[] };
type Row = Omit<dashboard.RowPanel, 'panels'> & { panels?: Panel[] };
type Board = Omit<dashboard.Dashboard, 'panels'> & { panels?: (Panel | Row)[] };

/** Panels that lie on one grid: the open ones of a dashboard, or those inside a collapsed row. */
interface Grid {
  row?: string;
  panels: (Panel | Row)[];
}

class Checker {
  readonly wrong: string[] = [];
  private readonly used = new Set<string>();
  private readonly queries = new Map<string, string | undefined>();
  private readonly metrics: Map<string, Metric>;
  private readonly rules: Set<string>;

  constructor(
    private readonly root: string,
    private readonly boards: Map<string, Board>,
    private readonly absent: Record<string, string>,
  ) {
    this.metrics = documented(root);
    this.rules = recorded(root);
    if (this.metrics.size < 50) this.say('METRICS.md', 'the table of metrics was not understood');
  }

  run(): string[] {
    const uids = [...this.boards.values()].map((board) => board.uid ?? '');
    if (new Set(uids).size !== uids.length) this.say('dashboards', `uids are not unique: ${uids.join(', ')}`);
    this.boards.forEach((board, path) => this.board(path, board, uids));
    this.coverage();
    this.intervals();
    this.absences();
    this.provisioned();
    return this.wrong;
  }

  private say(where: string, what: string): void {
    this.wrong.push(`${where}: ${what}`);
  }

  private board(path: string, board: Board, uids: string[]): void {
    const all = board.panels ?? [];
    const rows = all.filter(isRow);
    const grids: Grid[] = [{ panels: all }, ...rows.map((row) => ({ row: row.title ?? '', panels: row.panels ?? [] }))];
    grids.forEach((grid) => this.overlaps(path, grid.panels));
    grids.forEach((grid) => this.holes(path, grid.panels));
    const panels = grids.flatMap((grid) => grid.panels.filter(isPanel).map((panel) => ({ panel, row: grid.row })));
    this.unique(path, 'ids', [...rows, ...panels.map(({ panel }) => panel)].map((panel) => String(panel.id)));
    this.unique(path, 'titles', panels.map(({ panel }) => panel.title ?? ''));
    panels.forEach(({ panel, row }) => this.panel(path, panel, row));
    this.variables(path, board);
    for (const annotation of board.annotations?.list ?? []) {
      const target = annotation.target as Target | undefined;
      this.query(path, target?.expr ?? '', target?.legendFormat ?? '');
      const text = mark(annotation, { alertname: 'LumpscopeDown' });
      const page = /href="([^"]*)\/LumpscopeDown\.md"/.exec(text)?.[1];
      if (!text.startsWith('LumpscopeDown\n') || !page) this.say(path, `a mark of ${annotation.name} does not name its alert and its runbook: ${text}`);
      else if (!this.served(page)) this.say(path, `docker-compose.yml puts no runbooks at ${page}`);
    }
    const text = JSON.stringify(board);
    for (const [, uid = ''] of text.matchAll(/\/d\/([\w-]+)/g)) {
      if (!uids.includes(uid)) this.say(path, `a link leads to ${uid}, which does not exist`);
    }
    for (const [, uid = ''] of text.matchAll(/"uid":"([^"]*)"/g)) {
      if (uid !== board.uid && !SOURCES.has(uid)) this.say(path, `no data source has the uid ${uid}`);
    }
  }

  private unique(path: string, what: string, values: string[]): void {
    const twice = values.filter((value, i) => values.indexOf(value) !== i);
    if (twice.length > 0) this.say(path, `${what} are not unique: ${twice.join(', ')}`);
  }

  private overlaps(path: string, panels: (Panel | Row)[]): void {
    const taken = new Map<string, string>();
    for (const { title = '', gridPos } of panels) {
      if (!gridPos || gridPos.x < 0 || gridPos.w < 1 || gridPos.h < 1 || gridPos.x + gridPos.w > COLUMNS) {
        this.say(path, `${title} does not lie on the grid`);
        continue;
      }
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          const other = taken.get(`${x},${y}`);
          if (other !== undefined) return this.say(path, `${title} lies on ${other}`);
          taken.set(`${x},${y}`, title);
        }
      }
    }
  }

  /** A line of the grid is taken from end to end, or by a row. */
  private holes(path: string, panels: (Panel | Row)[]): void {
    const widths = new Map<number, number>();
    for (const { gridPos } of panels) {
      const { y = 0, w = 0, h = 0 } = gridPos ?? {};
      for (let line = y; line < y + h; line += 1) widths.set(line, (widths.get(line) ?? 0) + w);
    }
    const holes = [...widths].filter(([, width]) => width !== COLUMNS).map(([line, width]) => `${width} of ${COLUMNS} at ${line}`);
    if (holes.length > 0) this.say(path, `holes in the grid: ${holes.join(', ')}`);
  }

  /** Grafana serves what lies in its folder public, and docker-compose.yml puts the runbooks there. */
  private served(page: string): boolean {
    return readFileSync(join(this.root, 'docker-compose.yml'), 'utf8').includes(`./docs/runbooks:/usr/share/grafana${page}:ro`);
  }

  /** Tables have a line for each of the intervals that METRICS.md lists, in the order that they give it. */
  private intervals(): void {
    const text = readFileSync(join(this.root, 'service/server/METRICS.md'), 'utf8');
    const listed = [...text.matchAll(/`(0|[\w]+\.\.[\w]+)`/g)].map((m) => m[1] ?? '').filter((name) => /^\d/.test(name));
    const queries = [...this.queries.keys()].join('\n');
    const unseen = listed.filter((name) => !queries.includes(`seek="${name}"`));
    if (listed.length < 6 || unseen.length > 0) this.say('METRICS.md', `no table has a line for seek=${unseen.join(', ')}`);
  }

  private panel(path: string, panel: Panel, row: string | undefined): void {
    const where = `${path}: ${panel.title ?? panel.id}`;
    if (!panel.title) this.say(where, 'no title');
    if ((panel.description ?? '').length < 40) this.say(where, 'no description that says something');
    const unit = panel.fieldConfig?.defaults.unit;
    if (!unit || !UNITS.has(unit)) this.say(where, `Grafana knows no unit ${unit}`);
    if (!panel.targets?.length) this.say(where, 'no queries');
    misshown(panel).forEach((what) => this.say(where, what));
    for (const target of panel.targets ?? []) {
      if (target.datasource?.uid !== '${datasource}') this.say(where, 'its data source is not the chosen one');
      this.query(where, target.expr ?? '', target.legendFormat ?? '');
      this.queries.set(target.expr ?? '', row);
    }
  }

  /** Every series exists, with the labels that are asked of it. */
  private query(where: string, expr: string, legend: string): void {
    const asked = ask(expr);
    asked.errors.forEach((error) => this.say(where, `PromQL is not understood ${error}`));
    const known = new Set(asked.made);
    for (const { name, labels } of asked.selectors) {
      const found = seriesOf(name, this.metrics);
      if (!found && !this.rules.has(name)) this.say(where, `there is no series ${name}`);
      if (!found) continue;
      this.used.add(found.metric);
      found.labels.forEach((label) => known.add(label));
      const foreign = labels.filter((label) => !found.labels.includes(label));
      if (foreign.length > 0) this.say(where, `${name} has no label ${foreign.join(', ')}`);
    }
    const shown = [...legend.matchAll(/\{\{\s*(\w+)\s*\}\}/g)].map((m) => m[1] ?? '');
    const foreign = [...asked.labels, ...shown].filter((label) => !known.has(label));
    if (foreign.length > 0) this.say(where, `nothing here has the label ${foreign.join(', ')}: ${expr}`);
  }

  /** Queries of variables are understood, and every variable that is used is defined. */
  private variables(path: string, board: Board): void {
    const list = board.templating.list ?? [];
    for (const variable of list.filter((v) => v.type === 'query')) {
      const query = typeof variable.query === 'object' ? String(variable.query['query']) : (variable.query ?? '');
      const parts = /^label_values\((.*), (\w+)\)$/.exec(query);
      if (!parts) this.say(path, `the variable ${variable.name} is not understood: ${query}`);
      else this.query(`${path}: $${variable.name}`, parts[1] ?? '', `{{${parts[2]}}}`);
    }
    const defined = new Set(list.map((variable) => variable.name));
    for (const [, name = ''] of JSON.stringify(board).matchAll(/\$\{?(\w+)/g)) {
      if (!defined.has(name) && !BUILT_IN.test(name)) this.say(path, `there is no variable $${name}`);
    }
  }

  /** Every metric is shown somewhere, or there is a reason. */
  private coverage(): void {
    for (const name of this.metrics.keys()) {
      if (!this.used.has(name) && !UNUSED[name]) this.say('METRICS.md', `${name} is in no dashboard (src/unused.ts: why)`);
    }
    for (const name of Object.keys(UNUSED)) {
      if (this.used.has(name)) this.say('src/unused.ts', `${name} is in a dashboard`);
      if (!this.metrics.has(name)) this.say('src/unused.ts', `there is no metric ${name}`);
    }
  }

  /** What may be absent lies in rows that say so. */
  private absences(): void {
    for (const expr of Object.keys(this.absent)) {
      if (!this.queries.get(expr)?.startsWith('Only when')) this.say('absent.json', `not in a row "Only when ...": ${expr}`);
    }
  }

  /** The provisioned data sources have the uids that the dashboards name. */
  private provisioned(): void {
    const folder = join(this.root, 'dashboards/grafana/provisioning/datasources');
    const text = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8')).join('\n');
    for (const uid of [...SOURCES].filter((uid) => !uid.startsWith('$'))) {
      if (!text.includes(`uid: ${uid}\n`)) this.say('provisioning/datasources', `none has the uid ${uid}`);
    }
  }
}

function isRow(panel: Panel | Row): panel is Row {
  return panel.type === 'row';
}

function isPanel(panel: Panel | Row): panel is Panel {
  return panel.type !== 'row';
}

/** Everything that is wrong with the files. */
export function check(root: string, files: Map<string, string>): string[] {
  const boards = [...files].filter(([path]) => path.startsWith('dashboards/'));
  const parsed = new Map(boards.map(([path, text]) => [path, JSON.parse(text) as Board]));
  const absent = JSON.parse(files.get('absent.json') ?? '{}') as Record<string, string>;
  return new Checker(root, parsed, absent).run();
}

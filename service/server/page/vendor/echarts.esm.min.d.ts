/** The few functions of ECharts that the page uses. */
export interface Chart {
  group: string;
  setOption(option: object): void;
  resize(): void;
  dispose(): void;
  containPixel(finder: { gridIndex: number }, pixel: number[]): boolean;
  convertFromPixel(finder: { gridIndex: number }, pixel: number[]): number[];
}
export function init(dom: HTMLElement, theme: null, options: { renderer: "canvas" | "svg" }): Chart;
export function connect(group: string): void;
export const graphic: {
  extendShape(shape: object): unknown;
  registerShape(name: string, shape: unknown): void;
};

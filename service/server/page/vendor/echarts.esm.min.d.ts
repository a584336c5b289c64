/** The few functions of ECharts that the page uses. */
export interface Chart {
  group: string;
  setOption(option: object): void;
  resize(): void;
  dispose(): void;
  on(event: string, listener: (event: any) => void): void;
}
export function init(dom: HTMLElement, theme: null, options: { renderer: "canvas" | "svg" }): Chart;
export function connect(group: string): void;

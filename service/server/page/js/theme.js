// @ts-check
/** Light or dark: as the system has it, or as was chosen. */

const KEY = "lumpscope-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

/**
 * What was chosen.
 * @returns {"system"|"light"|"dark"}
 */
export function chosen() {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "system";
}

/**
 * True: the page is dark now.
 * @returns {boolean}
 */
export function isDark() {
  return chosen() === "system" ? system.matches : chosen() === "dark";
}

/**
 * Chooses, and remembers.
 * @param {string} value "light", "dark"; else as the system has it
 */
export function choose(value) {
  if (value === "light" || value === "dark") localStorage.setItem(KEY, value);
  else localStorage.removeItem(KEY);
  apply();
}

/** Sets the theme on the page. */
export function apply() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

/**
 * Tells of changes of the system.
 * @param {() => void} changed
 */
export function watch(changed) {
  system.addEventListener("change", () => {
    apply();
    changed();
  });
}

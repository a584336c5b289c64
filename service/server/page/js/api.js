// @ts-check
/** Asks the service. The token stands in the session's storage and in a header, never in an address. */

const KEY = "lumpscope-token";

/** The service refused, or could not be reached. */
export class ApiError extends Error {
  /**
   * @param {number} status of HTTP; 0: not reached
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * The token that is sent.
 * @returns {string} empty: none
 */
export function token() {
  return sessionStorage.getItem(KEY) ?? "";
}

/**
 * Remembers a token until the tab is closed.
 * @param {string} value empty: forget it
 */
export function setToken(value) {
  if (value === "") sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, value);
}

/**
 * Opens a path of the API.
 * @param {string} path below `api/v1/`
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>} an answer of 200
 * @throws {ApiError} any other, or none
 */
export async function open(path, signal) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (token() !== "") headers.Authorization = `Bearer ${token()}`;
  let answer;
  try {
    answer = await fetch(`api/v1/${path}`, { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "The service does not answer.");
  }
  if (answer.ok) return answer;
  throw new ApiError(answer.status, await why(answer));
}

/**
 * Reads JSON from a path of the API.
 * @param {string} path below `api/v1/`
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 * @throws {ApiError}
 */
export async function read(path, signal) {
  return (await open(path, signal)).json();
}

/** @param {Response} answer */
async function why(answer) {
  try {
    const said = await answer.json();
    if (typeof said.error === "string") return said.error;
  } catch {
    // No JSON: the status has to do.
  }
  return `The service answered ${answer.status}.`;
}

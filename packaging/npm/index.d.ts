/** The path of the program. */
export function binary(): string;

/** Something was still active after the timeout. */
export class NotSettled extends Error {
  /** What was still active. */
  readonly active: string[];
}

/** "36h", "10s", or seconds. */
export type Duration = string | number;

/** A running API server with its collectors. */
export class Server {
  /** Of the administrator. */
  readonly kubeconfig: string;
  readonly url: string;
  /** Resolves when nothing is left to do; rejects with `NotSettled` after the timeout. */
  settle(timeout?: Duration): Promise<{ settled: true; took: string }>;
  /** Sets the collectors' clock ahead. */
  advance(by: Duration): Promise<{ now: string; ahead: string }>;
  /** Puts objects and clock back to how they were at the start. */
  reset(): Promise<unknown>;
  /** The collectors' clock. */
  clock(): Promise<{ now: string; ahead: string }>;
  /** Calls /kubegc/v1/PATH as an administrator. */
  call(method: string, path: string, query?: Record<string, string>): Promise<unknown>;
  /** Stops the server; nothing is left behind. */
  stop(): Promise<void>;
}

/** Starts a server on a free port, with everything in memory. `args` are further arguments of `kubegc up`. */
export function start(options?: { args?: string[] }): Promise<Server>;

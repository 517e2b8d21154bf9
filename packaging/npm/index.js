// An API server with every Kubernetes garbage collector, for tests: see README.md.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { binary } from "./binary.js";

export { binary };

/** How long a server may take to be ready, and to end, on a slow machine. */
const START_MS = 60_000;
const STOP_MS = 30_000;
/** How much of what the server has logged an error shows. */
const SHOWN_BYTES = 65_536;

/** Something was still active after the timeout; `active` names it. */
export class NotSettled extends Error {
  constructor(message, active) {
    super(message);
    this.name = "NotSettled";
    this.active = active;
  }
}

/** A running server: `kubeconfig`, `url`, `settle()`, `advance()`, `stop()`. */
export class Server {
  #process;
  #folder;
  #token;
  #authority;
  #ended;

  constructor(child, folder, token, authority, ended, url) {
    this.#process = child;
    this.#folder = folder;
    this.#token = token;
    this.#authority = authority;
    this.#ended = ended;
    this.url = url;
    this.kubeconfig = join(folder, "kubeconfig");
  }

  /** Calls /kubegc/v1/PATH as an administrator; resolves to the decoded answer. */
  call(method, path, query = {}) {
    const url = new URL(`/kubegc/v1/${path}`, this.url);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const headers = { authorization: `Bearer ${this.#token}` };
    return new Promise((resolve, reject) => {
      const sent = request(url, { method, ca: this.#authority, headers, agent: false }, (answer) => {
        let text = "";
        answer.setEncoding("utf8");
        answer.on("data", (part) => (text += part));
        answer.on("error", reject);
        answer.on("end", () => {
          let body;
          try {
            body = JSON.parse(text);
          } catch {
            return reject(new Error(`${method} ${url.pathname}: ${answer.statusCode}, not JSON: ${text.slice(0, 200)}`));
          }
          if (answer.statusCode < 300) return resolve(body);
          if (answer.statusCode !== 504) return reject(new Error(body.message));
          reject(new NotSettled(body.message, (body.details?.causes ?? []).map((cause) => cause.message)));
        });
      });
      sent.on("error", reject);
      sent.end();
    });
  }

  /** Resolves when nothing is left to do; rejects with `NotSettled` after the timeout. Durations are "10s" or seconds. */
  settle(timeout = "10s") {
    return this.call("POST", "settle", { timeout: duration(timeout) });
  }

  /** Sets the collectors' clock ahead. Durations are "36h" or seconds. */
  advance(by) {
    return this.call("POST", "clock", { advance: duration(by) });
  }

  /** Puts objects and clock back to how they were at the start, for the next test on the same server. */
  reset() {
    return this.call("POST", "reset");
  }

  /** The collectors' clock: `now`, `ahead`. */
  clock() {
    return this.call("GET", "clock");
  }

  /** Stops the server; nothing is left behind. */
  async stop() {
    this.#process.kill("SIGTERM");
    const timer = setTimeout(() => this.#process.kill("SIGKILL"), STOP_MS);
    await this.#ended;
    clearTimeout(timer);
    await rm(this.#folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.stop();
  }
}

function duration(value) {
  return typeof value === "number" ? `${value}s` : value;
}

/**
 * Starts `kubegc up` on a free port, with everything in memory, and resolves when it is ready.
 * `args` are further arguments, such as `["--workloads=off"]`.
 */
export async function start({ args = [] } = {}) {
  const folder = await mkdtemp(join(tmpdir(), "kubegc-"));
  const kubeconfig = join(folder, "kubeconfig");
  const token = randomBytes(32).toString("base64url");
  const child = spawn(
    binary(),
    ["up", "--ephemeral", "--bind-address", "127.0.0.1:0", "--write-kubeconfig", kubeconfig, ...args],
    // Unlike arguments, the environment is not readable by other users.
    { env: { ...process.env, KUBEGC_TOKEN: token }, stdio: ["ignore", "pipe", "pipe"] },
  );
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  const ended = new Promise((resolve) => {
    child.once("exit", resolve);
    child.once("error", resolve);
  });
  ended.then(() => process.off("exit", kill));
  let log = "";
  child.stderr.setEncoding("utf8");
  child.stderr.on("data", (part) => (log = (log + part).slice(-SHOWN_BYTES)));
  const timer = setTimeout(kill, START_MS);
  let url;
  const lines = createInterface({ input: child.stdout });
  try {
    url = await new Promise((resolve, reject) => {
      lines.on("line", (line) => {
        const found = line.split("ready on ")[1];
        if (found) resolve(found.trim());
      });
      ended.then((cause) => reject(new Error(`kubegc up did not start: ${cause?.message ?? ""}\n${log}`)));
    });
    const text = await readFile(kubeconfig, "utf8");
    const authority = Buffer.from(/certificate-authority-data: (\S+)/.exec(text)[1], "base64");
    // A test runner ends although a server that was not stopped still runs; it is killed at the exit.
    child.unref();
    child.stdout.unref?.();
    child.stderr.unref?.();
    return new Server(child, folder, token, authority, ended, url);
  } catch (error) {
    kill();
    await rm(folder, { recursive: true, force: true });
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

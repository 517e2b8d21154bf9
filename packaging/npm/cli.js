#!/usr/bin/env node
// `npx kubegc …` is `kubegc …`.
import { spawn } from "node:child_process";
import { constants } from "node:os";
import { binary } from "./binary.js";

let program;
try {
  program = binary();
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// What is typed at a terminal reaches both; what is sent to this process is passed on.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`error: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));

// The package in a clone of kubegc, where no package carries the program: cargo has built it. Not published.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const built = ["release", "debug"]
  .map((profile) => fileURLToPath(new URL(`../../target/${profile}/kubegc`, import.meta.url)))
  .find(existsSync);
if (built) process.env.KUBEGC_BINARY ??= built;

export * from "./index.js";

// Where the program is: the package of this platform carries it.
import { createRequire } from "node:module";

/** The path of the program: $KUBEGC_BINARY, or that of the package for this platform. */
export function binary() {
  if (process.env.KUBEGC_BINARY) return process.env.KUBEGC_BINARY;
  const name = `@kubegc/${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url).resolve(`${name}/bin/kubegc`);
  } catch {
    throw new Error(
      `${name} is not installed. It is an optional dependency of kubegc: install without --omit=optional, ` +
        "or set $KUBEGC_BINARY. There are packages for linux and darwin on x64 and arm64.",
    );
  }
}

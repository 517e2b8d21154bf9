// Builds the page into dist/, which is in the repository. `--check` builds it elsewhere and compares.
import { build } from "esbuild";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const committed = join(here, "dist");
const check = process.argv.includes("--check");
const out = check ? mkdtempSync(join(tmpdir(), "kubegc-ui-")) : committed;

const result = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  metafile: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
mkdirSync(out, { recursive: true });
cpSync(join(here, "static"), out, { recursive: true });

// The licence of every package of which something is in the bundle.
const packages = new Set();
for (const input of Object.keys(result.metafile.inputs)) {
  const match = /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input);
  if (match) packages.add(match[1]);
}
// The bundle of dagre contains graphlib.
if (packages.has("@dagrejs/dagre")) packages.add("@dagrejs/graphlib");
let list = "The page of kubegc contains these packages.\n";
for (const name of [...packages].sort()) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  const text = file ? readFileSync(join(folder, file), "utf8").replaceAll("\r\n", "\n").trim() : "";
  list += `\n${"=".repeat(80)}\n${name} ${version}: ${license}\n${"=".repeat(80)}\n\n${text}\n`;
}
writeFileSync(join(out, "licenses.txt"), list);

if (check) {
  const names = [...new Set([...readdirSync(out), ...readdirSync(committed)])].sort();
  const read = (folder, name) => (existsSync(join(folder, name)) ? readFileSync(join(folder, name), "utf8") : null);
  const different = names.filter((name) => read(out, name) !== read(committed, name));
  rmSync(out, { recursive: true });
  if (different.length > 0) {
    console.error(`ui/dist is not what its source makes: ${different.join(", ")}; run npm run build in ui/ and commit it`);
    process.exit(1);
  }
  console.log("ui/dist is what its source makes");
}

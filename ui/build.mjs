// Builds the page into dist/, and the plugin for Headlamp into deploy/headlamp/kubegc/. Both are in the repository. `--check` builds
// them elsewhere and compares.
import { build } from "esbuild";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const check = process.argv.includes("--check");
const folder = (committed) => (check ? mkdtempSync(join(tmpdir(), "kubegc-ui-")) : committed);
const page = { committed: join(here, "dist"), made: folder(join(here, "dist")) };
const plugin = { committed: join(here, "../deploy/headlamp/kubegc"), made: folder(join(here, "../deploy/headlamp/kubegc")) };
const out = page.made;
const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: "es2022",
  legalComments: "none",
  jsx: "automatic",
  logLevel: "warning",
};

const result = await build({
  ...common,
  entryPoints: { app: "src/main.tsx" },
  outdir: out,
  format: "esm",
  metafile: true,
  jsxImportSource: "preact",
});
mkdirSync(out, { recursive: true });
cpSync(join(here, "static"), out, { recursive: true });

// Collects the licence of every package that the bundle contains a part of.
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

// The modules that Headlamp provides to its plugins, by name.
const provided = {
  react: "pluginLib.React",
  "react/jsx-runtime": "pluginLib.ReactJSX",
  "@kinvolk/headlamp-plugin/lib": "pluginLib",
  "@kinvolk/headlamp-plugin/lib/CommonComponents": "pluginLib.CommonComponents",
};
await build({
  ...common,
  entryPoints: { main: "headlamp/index.tsx" },
  outdir: plugin.made,
  format: "iife",
  jsxImportSource: "react",
  plugins: [
    {
      name: "headlamp",
      setup({ onResolve, onLoad }) {
        onResolve({ filter: /^(react|@kinvolk\/)/ }, ({ path }) => ({ path, namespace: "provided" }));
        onLoad({ filter: /.*/, namespace: "provided" }, ({ path }) => {
          if (!provided[path]) throw new Error(`Headlamp provides no ${path}`);
          return { contents: `module.exports = ${provided[path]};` };
        });
      },
    },
  ],
});
cpSync(join(here, "headlamp/package.json"), join(plugin.made, "package.json"));

if (check) {
  const compared = [page, plugin].map(({ committed, made }) => compare(committed, made));
  process.exit(compared.every(Boolean) ? 0 : 1);
}

/** Reports whether both folders contain the same files. */
function compare(committed, made) {
  const shown = relative(join(here, ".."), committed);
  const names = [...new Set([made, committed].flatMap((folder) => (existsSync(folder) ? readdirSync(folder) : [])))].sort();
  const read = (folder, name) => (existsSync(join(folder, name)) ? readFileSync(join(folder, name), "utf8") : null);
  const different = names.filter((name) => read(made, name) !== read(committed, name));
  rmSync(made, { recursive: true });
  if (different.length > 0) {
    console.error(`${shown} is not what its source makes: ${different.join(", ")}; run npm run build in ui/ and commit it`);
    return false;
  }
  console.log(`${shown} is what its source makes`);
  return true;
}

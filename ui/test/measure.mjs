// Measures frames, memory and the server's processor time while pages watch a cascade: node test/measure.mjs [DEPENDENTS] [PAGES]
import { readFileSync } from "node:fs";
import https from "node:https";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { browse, cascade, start } from "./cluster.mjs";
import { gone, watch } from "./frames.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const binary = process.env.KUBEGC ?? join(here, "../../target/debug/kubegc");
const [dependents, readers] = [Number(process.argv[2] ?? 10_000), Number(process.argv[3] ?? 0)];
const cluster = await start(binary);
/** Returns the seconds of processor time that the server has used. */
const used = () => {
  const fields = readFileSync(`/proc/${cluster.pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${cluster.pid}/status`, "utf8"))[1]) / 1024;
try {
  await cluster.must("POST", "/api/v1/namespaces", { metadata: { name: "shop" } });
  const { browser, open } = await browse(cluster, chromium, process.env.CHROMIUM ?? "/usr/bin/chromium");
  const remove = await cascade(cluster, dependents, "shop", "quiet");
  const [quiet, begun] = [used(), Date.now()];
  await remove();
  await gone(cluster);
  console.log("without a page", { seconds: (Date.now() - begun) / 1000, cpu: used() - quiet }, `server ${memory().toFixed(0)} MiB`);
  const streams = [];
  for (let number = 0; number < readers; number += 1) {
    const request = https.request(`${cluster.url}/kubegc/v1/feed`, { rejectUnauthorized: false, headers: { authorization: "Bearer administrator-token" } });
    request.on("response", (answer) => {
      const reader = { bytes: 0 };
      streams.push(reader);
      answer.on("data", (data) => (reader.bytes += data.length));
      answer.on("error", () => undefined);
    });
    request.on("error", () => undefined);
    request.end();
  }
  const views = [["map", "#/map?namespace=shop"], ["feed", "#/feed"]];
  const pages = await Promise.all(views.map(([, path]) => open({ path })));
  const { seconds, used: cpu, pages: measured } = await watch(cluster, pages, dependents, "watched", used);
  console.log(`with ${pages.length} pages and ${readers} other readers`, { seconds, cpu }, `server ${memory().toFixed(0)} MiB`);
  measured.forEach(({ heap, ...frames }, place) => console.log(views[place][0], frames, `heap ${heap.map((size) => size.toFixed(1)).join(" → ")} MiB`));
  if (streams.length > 0) console.log("read per stream", Math.round(streams.reduce((sum, reader) => sum + reader.bytes, 0) / streams.length), "bytes");
  await browser.close();
} finally {
  await cluster.stop();
}

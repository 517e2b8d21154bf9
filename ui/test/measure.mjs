// Frames, memory and the server's time while pages watch a cascade: node test/measure.mjs [DEPENDENTS] [PAGES]
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { browse, cascade, start } from "./cluster.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const binary = process.env.KUBEGC ?? join(here, "../../target/debug/kubegc");
const [dependents, readers] = [Number(process.argv[2] ?? 10_000), Number(process.argv[3] ?? 0)];
const cluster = await start(binary);
/** Seconds of processor time that the server has used. */
const used = () => {
  const fields = readFileSync(`/proc/${cluster.pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${cluster.pid}/status`, "utf8"))[1]) / 1024;
try {
  await cluster.must("POST", "/api/v1/namespaces", { metadata: { name: "shop" } });
  const { browser, open } = await browse(cluster, chromium, process.env.CHROMIUM ?? "/usr/bin/chromium");
  const gone = async (name) => {
    for (;;) {
      const list = await cluster.must("GET", "/api/v1/namespaces/shop/configmaps?limit=1");
      if (list.items.length === 0) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };
  const run = async (name) => {
    const remove = await cascade(cluster, dependents, "shop", name);
    const [before, begun] = [used(), Date.now()];
    await remove();
    await gone(name);
    return { seconds: (Date.now() - begun) / 1000, cpu: used() - before };
  };
  console.log("without a page", await run("quiet"), `${memory().toFixed(0)} MiB`);
  const page = await open({ path: "#/map?namespace=shop" });
  const feed = await open({ path: "#/feed" });
  const streams = [];
  const https = await import("node:https");
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
  await page.waitForTimeout(1500);
  for (const [name, watched] of [["map", page], ["feed", feed]]) {
    const remove = await cascade(cluster, dependents, "shop", name);
    await watched.bringToFront();
    await watched.waitForTimeout(2500);
    const devtools = await watched.context().newCDPSession(watched);
    const heap = async () => {
      await devtools.send("HeapProfiler.collectGarbage");
      return (await devtools.send("Runtime.getHeapUsage")).usedSize / 1048576;
    };
    const first = await heap();
    await watched.evaluate(() => {
      const times = [];
      globalThis.frames_ = times;
      const tick = (time) => {
        times.push(time);
        if (!globalThis.stopped_) requestAnimationFrame(tick);
      };
      requestAnimationFrame(tick);
    });
    const [before, begun] = [used(), Date.now()];
    await remove();
    await gone(name);
    const [cpu, seconds] = [used() - before, (Date.now() - begun) / 1000];
    await watched.waitForTimeout(500);
    const frames = await watched.evaluate(() => {
      globalThis.stopped_ = true;
      const times = globalThis.frames_;
      const gaps = times.slice(1).map((time, place) => time - times[place]).sort((left, right) => left - right);
      return { perSecond: (1000 * gaps.length) / (times.at(-1) - times[0]), p95: gaps[Math.floor(gaps.length * 0.95)], worst: gaps.at(-1) };
    });
    console.log(`with ${readers} readers, ${name} shown`, { seconds, cpu }, frames, `heap ${first.toFixed(1)} → ${(await heap()).toFixed(1)} MiB`, `server ${memory().toFixed(0)} MiB`);
  }
  if (streams.length > 0) console.log("read per stream", Math.round(streams.reduce((sum, reader) => sum + reader.bytes, 0) / streams.length), "bytes");
  await browser.close();
} finally {
  await cluster.stop();
}

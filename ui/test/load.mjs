// Measures the cost of open pages for the server during a cascade: node ui/test/load.mjs [DEPENDENTS] [PAGES] [ROUNDS], with the binary in $KUBEGC.
// Each page follows the feed and asks for what a page on the screen asks for, when it would: the overview, and every second page the
// map. Rounds without and with pages take turns; the exit code is 1 if the pages cost LIMIT or more.
import { readFileSync } from "node:fs";
import https from "node:https";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { cascade, start } from "./cluster.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const binary = process.env.KUBEGC ?? join(here, "../../target/debug/kubegc");
const [dependents, pages, rounds] = [process.argv[2] ?? 100_000, process.argv[3] ?? 50, process.argv[4] ?? 2].map(Number);
/** Maximum share of a cascade's processor time that pages may add. */
const LIMIT = 0.2;
/** Delay of a page's refresh after a change, and interval without changes, in milliseconds, as in src/state.ts. */
const [AFTER_CHANGE, WITHOUT_CHANGE] = [1500, 10_000];
const sleep = (time) => new Promise((resolve) => setTimeout(resolve, time));

const cluster = await start(binary);
/** Returns the seconds of processor time that the server has used. */
const used = () => {
  const fields = readFileSync(`/proc/${cluster.pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${cluster.pid}/status`, "utf8"))[1]) / 1024;

const read = { feed: 0, answers: 0, asked: 0, refused: 0 };

/** Opens a page. The returned function closes it. */
function open(number) {
  const agent = new https.Agent({ rejectUnauthorized: false, keepAlive: true, maxSockets: 4 });
  const headers = { authorization: "Bearer administrator-token", "accept-encoding": "gzip" };
  let [closed, due, timer] = [false, Infinity, 0];
  const get = (path, data) =>
    new Promise((resolve) => {
      const request = https.request(cluster.url + path, { agent, headers });
      request.on("error", resolve);
      request.on("response", (answer) => {
        if (answer.statusCode !== 200) read.refused += 1;
        answer.on("data", data);
        answer.on("error", resolve);
        answer.on("end", resolve);
      });
      request.end();
      stop.push(() => request.destroy());
    });
  const stop = [];
  const within = (time) => {
    if (closed || Date.now() + time >= due) return;
    clearTimeout(timer);
    due = Date.now() + time;
    timer = setTimeout(refresh, time);
  };
  const refresh = async () => {
    // Changes count only after the responses have arrived.
    due = -Infinity;
    const paths = ["/kubegc/v1/overview", ...(number % 2 ? ["/kubegc/v1/map?namespace=shop"] : [])];
    read.asked += paths.length;
    await Promise.all(paths.map((path) => get(path, (data) => (read.answers += data.length))));
    due = Infinity;
    within(WITHOUT_CHANGE);
  };
  get("/kubegc/v1/feed", (data) => {
    read.feed += data.length;
    within(AFTER_CHANGE);
  });
  refresh();
  return () => {
    closed = true;
    clearTimeout(timer);
    stop.forEach((end) => end());
    agent.destroy();
  };
}

async function round(number, watched) {
  const remove = await cascade(cluster, dependents, "shop", `tree-${number}`);
  const opened = watched ? Array.from({ length: pages }, (_, page) => open(page)) : [];
  // The first answers are part of opening a page, not of the cascade.
  await sleep(5000);
  const [before, begun, first] = [used(), Date.now(), { ...read }];
  await remove();
  while ((await cluster.must("GET", "/api/v1/namespaces/shop/configmaps?limit=1")).items.length > 0) await sleep(50);
  const [cpu, seconds] = [used() - before, (Date.now() - begun) / 1000];
  const during = Object.fromEntries(Object.entries(read).map(([name, value]) => [name, value - first[name]]));
  opened.forEach((close) => close());
  console.log(`${watched ? `${pages} pages` : "no page"}: ${cpu.toFixed(2)} s of processor time in ${seconds.toFixed(1)} s, ${memory().toFixed(0)} MiB`);
  if (watched) console.log(`  feed ${(during.feed / 1024 / pages).toFixed(0)} KiB and ${(during.asked / pages).toFixed(1)} questions for each page, answers ${(during.answers / 1024 / pages).toFixed(0)} KiB, ${during.refused} refused`);
  await sleep(2000);
  return cpu;
}

try {
  await cluster.must("POST", "/api/v1/namespaces", { metadata: { name: "shop" } });
  // The first cascade warms the server up.
  await round("warm", false);
  const [quiet, watched] = [[], []];
  for (let number = 0; number < rounds; number += 1) {
    quiet.push(await round(`quiet-${number}`, false));
    watched.push(await round(`watched-${number}`, true));
  }
  const sum = (all) => all.reduce((total, one) => total + one, 0);
  const more = sum(watched) / sum(quiet) - 1;
  console.log(`${pages} pages cost ${(100 * more).toFixed(1)} % more processor time (limit ${100 * LIMIT} %)`);
  process.exitCode = more < LIMIT ? 0 : 1;
} finally {
  await cluster.stop();
}

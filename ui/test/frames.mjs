// Measures how smoothly a page shows a cascade, and how much memory it uses, for the tests and for measure.mjs.
import { cascade } from "./cluster.mjs";

/** Waits until the owner of a cascade and all its dependents are gone. */
export async function gone(cluster) {
  while ((await cluster.must("GET", "/api/v1/namespaces/shop/configmaps?limit=1")).items.length > 0) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Waits until the page has received the latest data. */
const informed = (page) => page.waitForResponse((answer) => answer.url().includes("/kubegc/v1/overview"));

/** Counts the frames that a page draws, and measures its heap. The returned function ends the measurement. */
async function measure(page) {
  const devtools = await page.context().newCDPSession(page);
  const heap = async () => {
    await devtools.send("HeapProfiler.collectGarbage");
    return (await devtools.send("Runtime.getHeapUsage")).usedSize / 1048576;
  };
  const before = await heap();
  await page.evaluate(() => {
    const times = [];
    globalThis.measured = { times, stopped: false };
    const tick = (time) => {
      times.push(time);
      if (!globalThis.measured.stopped) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
  return async () => {
    const times = await page.evaluate(() => {
      globalThis.measured.stopped = true;
      return globalThis.measured.times;
    });
    const gaps = times.slice(1).map((time, place) => time - times[place]).sort((left, right) => left - right);
    const last = times.at(-1);
    const within = (from) => times.filter((time) => time > from && time <= from + 1000).length;
    await informed(page);
    return {
      framesPerSecond: (1000 * gaps.length) / (last - times[0]),
      slowest: Math.min(...times.filter((time) => time + 1000 <= last).map(within)),
      p95: gaps[Math.floor(gaps.length * 0.95)],
      worst: gaps.at(-1),
      heap: [before, await heap()],
    };
  };
}

/**
 * Frames and memory of pages while they show a cascade of this many objects in the namespace `shop`, in which nothing else is. Of
 * each page: frames a second from the deletion of the owner to that of the last dependent, altogether and in the slowest second of
 * them, the longest frames in milliseconds, and the heap in MiB before and after. Altogether: how long it took, and by how much
 * `used` has grown meanwhile.
 */
export async function watch(cluster, pages, dependents, name, used = () => 0) {
  const remove = await cascade(cluster, dependents, "shop", name);
  await Promise.all(pages.map(informed));
  const ends = await Promise.all(pages.map(measure));
  const [begun, cost] = [Date.now(), used()];
  await remove();
  await gone(cluster);
  const [seconds, grown] = [(Date.now() - begun) / 1000, used() - cost];
  return { seconds, used: grown, pages: await Promise.all(ends.map((end) => end())) };
}

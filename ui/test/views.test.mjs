// Tests the views of the page at three widths: node --test test/views.test.mjs. Needs Chromium and the binary. SCREENSHOTS=FOLDER keeps the
// screenshots.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { browse, cascade, folder, furnish, start } from "./cluster.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const binary = process.env.KUBEGC ?? join(here, "../../target/debug/kubegc");
const executable = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const axe = readFileSync(join(here, "../node_modules/axe-core/axe.min.js"), "utf8");
const PATIENCE = 20_000;
const WIDTHS = [[390, 844], [1024, 768], [1440, 900]];

async function violations(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).join(", ")}`);
}

const owner = (object, apiVersion, kind) => ({ apiVersion, kind, name: object.metadata.name, uid: object.metadata.uid, controller: true });

test("the views", { timeout: 300_000 }, async (context) => {
  assert.ok(existsSync(binary), `${binary} is not there: cargo build -p kubegc`);
  const [pictures, remove] = process.env.SCREENSHOTS ? [process.env.SCREENSHOTS, () => undefined] : folder();
  mkdirSync(pictures, { recursive: true });
  context.after(remove);
  const cluster = await start(binary);
  context.after(() => cluster.stop());
  const { browser, open, link } = await browse(cluster, chromium, executable);
  context.after(() => browser.close());
  const clean = (page) => assert.deepEqual({ errors: page.errors, elsewhere: page.elsewhere }, { errors: [], elsewhere: [] });
  const fits = async (page, what) => assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${what} is wider than the screen`);

  await context.test("a first screen without anything on it teaches the first step", async () => {
    for (const [width, height] of WIDTHS) {
      const page = await open({ width, height });
      const steps = page.getByRole("region", { name: "Nothing has been deleted yet" });
      await steps.waitFor({ timeout: PATIENCE });
      assert.deepEqual(await steps.locator("code").allInnerTexts(), [
        "kubectl create deployment first --image=nginx --replicas=3",
        "kubegc plan delete deployment first",
        "kubectl delete deployment first",
      ]);
      assert.equal(await steps.getByRole("button", { name: /^Copy: / }).count(), 3);
      await fits(page, `the empty screen at ${width}`);
      assert.deepEqual(await violations(page), []);
      await page.screenshot({ path: join(pictures, `empty-${width}.png`) });
      clean(page);
      await page.context().close();
    }
  });

  await furnish(cluster);
  await (await cascade(cluster, 30))();
  await cluster.must("POST", "/api/v1/namespaces/shop/events", {
    metadata: { name: "web.1" },
    involvedObject: { kind: "Deployment", namespace: "shop", name: "web" },
    reason: "Scaled",
  });

  await context.test("at three widths, nothing is cut off and nothing violates a rule of accessibility", async () => {
    const views = [
      ["overview", "#/", "search.example.com/release-index"],
      ["map", "#/map?namespace=shop", "cart-index"],
      ["all", "#/map", "ledger"],
      ["feed", "#/feed", "Owners absent"],
      ["object", "#/?object=configmaps/shop/cart-index", "What holds it"],
      ["plan", "#/map?namespace=shop&object=deployments.apps/shop/web", "2 dependents"],
    ];
    for (const [width, height] of WIDTHS) {
      for (const [name, path, text] of views) {
        const page = await open({ width, height, dark: width === 1024, path });
        await page.getByText(text).first().waitFor({ timeout: PATIENCE });
        await fits(page, `${name} at ${width}`);
        assert.deepEqual(await violations(page), [], `${name} at ${width}`);
        await page.screenshot({ path: join(pictures, `${name}-${width}.png`) });
        clean(page);
        await page.context().close();
      }
    }
  });

  await context.test("what is stuck names its finalizer, and what is due says why without saying that it is over", async () => {
    const page = await open();
    const row = page.getByRole("region", { name: "Stuck" }).locator(".row-head").first();
    await row.waitFor({ timeout: PATIENCE });
    assert.match(await row.innerText(), /ConfigMap\/cart-index\s*search\.example\.com\/release-index/);
    const due = page.getByRole("region", { name: "Due in the next 24 hours" });
    const job = due.locator("li", { hasText: "import-0412" });
    assert.equal(await job.locator(".badge").innerText(), "TTL");
    assert.ok(!/expired/i.test(await due.innerText()), await due.innerText());
    clean(page);
    await page.context().close();
  });

  await context.test("the feed is a table where there is room for one", async () => {
    const page = await open({ path: "#/feed" });
    const table = page.getByRole("table");
    await table.waitFor({ timeout: PATIENCE });
    assert.deepEqual((await table.getByRole("columnheader").allInnerTexts()).slice(0, 7), ["Time", "What", "Object", "Namespace", "Why", "Owner", "Collector"]);
    const line = table.getByRole("row", { name: /tree-30-/ }).first();
    assert.match(await line.innerText(), /deleted\s+ConfigMap\s+tree-30-\d+\s+shop\s+Owners absent\s+ConfigMap\/tree-30\s+generic garbage collector|garbage collector/);
    await line.getByRole("button", { name: /^Evidence for / }).click();
    await table.locator(".evidence").first().waitFor();
    assert.deepEqual(await violations(page), []);
    clean(page);
    await page.context().close();
  });

  await context.test("the map of all namespaces, without Events unless they are chosen", async () => {
    const page = await open({ path: "#/map" });
    await page.getByRole("heading", { name: "Ownership in all namespaces" }).waitFor({ timeout: PATIENCE });
    await page.getByRole("button", { name: /^Deployment · shop web, 0\/6, living/ }).waitFor({ timeout: PATIENCE });
    await page.getByRole("button", { name: /^ConfigMap · bank ledger, living/ }).waitFor();
    await page.goto(`${cluster.url}/ui#/map?namespace=shop`);
    await page.getByRole("heading", { name: "Ownership in shop" }).waitFor({ timeout: PATIENCE });
    await page.getByRole("button", { name: /^Deployment web, 0\/6, living$/ }).waitFor({ timeout: PATIENCE });
    assert.equal(await page.getByRole("button", { name: /^Event / }).count(), 0);
    const kinds = page.locator(".kinds");
    await kinds.locator("summary").click();
    await kinds.getByText("Event", { exact: true }).click();
    await page.getByRole("button", { name: /^Event web\.1, living/ }).waitFor({ timeout: PATIENCE });
    assert.deepEqual(await violations(page), []);
    // Without ReplicaSets, the map draws Pods below the Deployment.
    await kinds.getByText("ReplicaSet", { exact: true }).click();
    await page.getByRole("button", { name: /^ReplicaSet / }).first().waitFor({ state: "detached", timeout: PATIENCE });
    const map = (await cluster.ask("GET", "/kubegc/v1/map?namespace=shop&kinds=pods,deployments.apps")).body;
    assert.equal(map.edges.length, 6);
    assert.ok(map.edges.every(({ owner }) => map.nodes[owner].object.kind === "Deployment"));
    clean(page);
    await page.context().close();
  });

  await context.test("each owner has its own groups, and the drawing uses the room", async () => {
    await cluster.must("POST", "/api/v1/namespaces", { metadata: { name: "farm" } });
    const maps = "/api/v1/namespaces/farm/configmaps";
    for (let number = 0; number < 32; number += 1) {
      const root = await cluster.must("POST", maps, { metadata: { name: `field-${number}` } });
      const ownerReferences = [owner(root, "v1", "ConfigMap")];
      await Promise.all(Array.from({ length: 30 }, (_, leaf) => cluster.must("POST", maps, { metadata: { name: `field-${number}-${leaf}`, ownerReferences } })));
    }
    const page = await open({ path: "#/map?namespace=farm" });
    await page.getByRole("button", { name: "ConfigMap 30 objects, living", exact: true }).nth(31).waitFor({ timeout: PATIENCE });
    const boxes = await page.locator(".node .box:not(.behind)").evaluateAll((all) => all.map((one) => one.getBoundingClientRect().toJSON()));
    const canvas = await page.locator(".canvas").boundingBox();
    const [left, right] = [Math.min(...boxes.map((box) => box.left)), Math.max(...boxes.map((box) => box.right))];
    const [top, bottom] = [Math.min(...boxes.map((box) => box.top)), Math.max(...boxes.map((box) => box.bottom))];
    assert.ok((right - left) / canvas.width > 0.7 || (bottom - top) / canvas.height > 0.8, `${right - left} × ${bottom - top} of ${canvas.width} × ${canvas.height}`);
    // No text is wider than its node.
    const outside = await page.locator(".node").evaluateAll((all) =>
      all.filter((node) => {
        const box = node.querySelector(".box:not(.behind)").getBoundingClientRect();
        return [...node.querySelectorAll("text")].some((text) => text.getBoundingClientRect().right > box.right || text.getBoundingClientRect().left < box.left);
      }).length,
    );
    assert.equal(outside, 0);
    const narrow = await open({ width: 390, height: 844, path: "#/map?namespace=shop" });
    const node = narrow.getByRole("button", { name: /^Deployment web, 0\/6, living/ });
    await node.waitFor({ timeout: PATIENCE });
    assert.ok((await node.boundingBox()).width > 280, "a node is as wide as the screen");
    await page.screenshot({ path: join(pictures, "families-1440.png") });
    await narrow.context().close();

    // The namespace is deleted together with everything shown of it.
    await cluster.must("DELETE", "/api/v1/namespaces/farm");
    await page.getByText("There is no namespace farm").waitFor({ timeout: 4 * PATIENCE });
    assert.equal(await page.locator(".node").count(), 0);
    page.errors = page.errors.filter((error) => !error.includes("status of 404"));
    clean(page);
    await page.context().close();
  });

  await context.test("an object has its dependents and its status, and one that never was is not said to be gone", async () => {
    const page = await open({ path: "#/?object=deployments.apps/shop/web" });
    await page.getByRole("heading", { name: "2 dependents" }).waitFor({ timeout: PATIENCE });
    await page.getByRole("tabpanel").getByRole("button", { name: /ReplicaSet web-5d8f7c9b44/ }).click();
    await page.getByRole("heading", { name: "6 dependents" }).waitFor({ timeout: PATIENCE });
    await page.goto(`${cluster.url}/ui#/?object=namespaces//shop`);
    await page.getByRole("heading", { name: "Status: Active" }).waitFor({ timeout: PATIENCE });
    await page.goto(`${cluster.url}/ui#/?object=configmaps/shop/never`);
    await page.getByText("There is no such object").waitFor({ timeout: PATIENCE });
    assert.equal(await page.getByText("It is gone").count(), 0);
    await page.goto(`${cluster.url}/ui#/?object=configmaps/shop/tree-30-7`);
    await page.getByText("It is gone").waitFor({ timeout: PATIENCE });
    await page.getByText(/It was collected: Owners absent/).waitFor();
    page.errors = page.errors.filter((error) => !error.includes("status of 404"));
    clean(page);
    await page.context().close();
  });

  await context.test("a pause by somebody else shows without a reload", async () => {
    const page = await open();
    await page.getByText("Live", { exact: true }).waitFor({ timeout: PATIENCE });
    await page.getByText("Acting", { exact: true }).waitFor({ timeout: PATIENCE });
    await cluster.must("POST", "/kubegc/v1/pause", { reason: "lunch" });
    await page.getByText("The collectors are paused").waitFor({ timeout: PATIENCE });
    await cluster.must("POST", "/kubegc/v1/resume", {});
    await page.getByText("Acting", { exact: true }).waitFor({ timeout: PATIENCE });
    clean(page);
    await page.context().close();
  });

  await context.test("the fleet of nodes: disks, images, unexplained bytes and last passes, those first that need somebody", async () => {
    for (const [width, height] of WIDTHS) {
      for (const dark of [false, true]) {
        const page = await open({ width, height, dark, path: "#/nodes" });
        const fleet = page.getByRole("region", { name: "Nodes" });
        await fleet.getByText("Without a report: node-3").waitFor({ timeout: PATIENCE });
        const rows = await fleet.locator("tbody tr").allInnerTexts();
        assert.equal(rows.length, 2);
        assert.match(rows[0], /node-2[\s\S]*92 %\s+46 GiB of 50 GiB[\s\S]*12\s+4 GiB[\s\S]*not known[\s\S]*images failed/);
        assert.match(rows[1], /node-1[\s\S]*62 %\s+62 GiB of 100 GiB[\s\S]*41\s+24 GiB[\s\S]*3 GiB[\s\S]*\d+[sm] ago[\s\S]*1\.2 GiB\s+2 images due\s+workers would remove 12 images \(3 GiB\)/);
        await fits(page, `the nodes at ${width}`);
        assert.deepEqual(await violations(page), []);
        await page.screenshot({ path: join(pictures, `nodes-${width}${dark ? "-dark" : ""}.png`) });
        if (width === 1440 && !dark) {
          await page.getByRole("searchbox", { name: "Filter the nodes" }).fill("node-1");
          await fleet.locator("tbody tr").filter({ hasText: "node-2" }).waitFor({ state: "detached", timeout: PATIENCE });
          // The table is absent while the filtered nodes are being loaded.
          await fleet.locator("tbody tr").filter({ hasText: "node-1" }).waitFor({ timeout: PATIENCE });
          assert.equal(await fleet.locator("tbody tr").count(), 1);
          await fleet.getByRole("button", { name: /Node node-1/ }).click();
          await page.getByRole("tabpanel").waitFor({ timeout: PATIENCE });
        }
        clean(page);
        await page.context().close();
      }
    }
  });

  await context.test("a link that was used says so, at every width", async () => {
    const used = await link();
    const first = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
    await first.goto(used);
    await first.context().close();
    for (const [width, height] of WIDTHS) {
      const page = await (await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width, height } })).newPage();
      await page.goto(used);
      await page.getByRole("alert").waitFor({ timeout: PATIENCE });
      await fits(page, `the bad link at ${width}`);
      await page.evaluate(() => (navigator.clipboard.writeText = (text) => ((globalThis.copied = text), Promise.resolve())));
      await page.getByRole("button", { name: "Copy: kubegc ui", exact: true }).click();
      assert.equal(await page.evaluate(() => globalThis.copied), "kubegc ui");
      await page.screenshot({ path: join(pictures, `bad-link-${width}.png`) });
      await page.context().close();
    }
  });
});

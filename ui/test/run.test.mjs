// Tests the page of `kubegc run` in a browser, beside a server without collectors: node --test test/run.test.mjs. Needs Chromium and the binary.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { browse, cascade, caller, start } from "./cluster.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const binary = process.env.KUBEGC ?? join(here, "../../target/debug/kubegc");
const executable = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const axe = readFileSync(join(here, "../node_modules/axe-core/axe.min.js"), "utf8");
const PATIENCE = 20_000;

/** Starts `kubegc run` with a page beside a cluster. Returns functions that send requests to that page. */
async function collect(cluster, more = []) {
  const child = spawn(
    binary,
    ["run", "--kubeconfig", cluster.kubeconfig, "--bind-address", "127.0.0.1:0", "--ui-bind-address", "127.0.0.1:0", "--log-format", "json", "--journal", "none", ...more],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  let log = "";
  const url = await new Promise((resolve, reject) => {
    child.stderr.on("data", (data) => {
      log += data;
      const page = /"page":"(https:\/\/[^"/]+)\/ui"/.exec(log);
      if (page) resolve(page[1]);
    });
    child.on("exit", (code) => reject(new Error(`kubegc run ended with ${code}: ${log}`)));
  });
  const stop = () =>
    new Promise((resolve) => {
      child.removeAllListeners("exit");
      // A collector exits by itself when its server is gone.
      if (child.exitCode !== null) return resolve();
      child.on("exit", resolve);
      child.kill("SIGTERM");
    });
  return { url, stop, ...caller(url) };
}

test("the page of kubegc run", { timeout: 120_000 }, async (context) => {
  assert.ok(existsSync(binary), `${binary} is not there: cargo build -p kubegc`);
  const cluster = await start(binary, ["--controllers=ttl-after-finished-controller"]);
  context.after(() => cluster.stop());
  for (const name of ["shop", "bank"]) await cluster.must("POST", "/api/v1/namespaces", { metadata: { name } });
  const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/bank";
  await cluster.must("POST", `${rbac}/roles`, { metadata: { name: "reader" }, rules: [{ apiGroups: [""], resources: ["configmaps"], verbs: ["get", "list"] }] });
  await cluster.must("POST", `${rbac}/rolebindings`, {
    metadata: { name: "ann" },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "reader" },
    subjects: [{ kind: "User", name: "ann", apiGroup: "rbac.authorization.k8s.io" }],
  });
  const collector = await collect(cluster);
  context.after(() => collector.stop());
  const { browser, open } = await browse(collector, chromium, executable);
  context.after(() => browser.close());
  const clean = (page) => assert.deepEqual({ errors: page.errors, elsewhere: page.elsewhere }, { errors: [], elsewhere: [] });
  for (const place of ["shop", "bank"]) await (await cascade(cluster, 3, place, `tree-of-${place}`))();

  await context.test("an administrator sees both namespaces, the feed, and no button that deletes", async () => {
    const page = await open();
    await page.getByText("Acting", { exact: true }).waitFor({ timeout: PATIENCE });
    const feed = page.locator(".feed-lines");
    await feed.getByText(/tree-of-shop-0/).first().waitFor({ timeout: PATIENCE });
    await feed.getByText(/tree-of-bank-0/).first().waitFor({ timeout: PATIENCE });
    assert.equal(await page.getByRole("button", { name: "Pause the collectors" }).count(), 0);
    await cluster.must("POST", "/api/v1/namespaces/bank/configmaps", { metadata: { name: "ledger" } });
    await page.goto(`${collector.url}/ui#/?object=configmaps/bank/ledger`);
    await page.getByRole("tab", { name: "Plan a deletion" }).click({ timeout: PATIENCE });
    await page.getByText("1 object: 1 ConfigMap").waitFor({ timeout: PATIENCE });
    await page.getByText(/^Read-only/).waitFor();
    assert.equal(await page.getByRole("button", { name: /^Delete/ }).count(), 0);
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    assert.deepEqual(found.violations.map(({ id }) => id), []);
    clean(page);
    await page.context().close();
  });

  await context.test("a user of one namespace sees that namespace alone", async () => {
    const page = await open({ token: "ann-token" });
    await page.locator(".feed-lines").getByText(/tree-of-bank-0/).first().waitFor({ timeout: PATIENCE });
    await page.getByRole("combobox", { name: "Namespace" }).locator("option", { hasText: "bank" }).waitFor({ state: "attached", timeout: PATIENCE });
    assert.ok(!/shop/.test(await page.locator("body").innerText()));
    clean(page);
    await page.context().close();
  });

  await context.test("what the circuit breaker has stopped is named, and resumed by a button", async () => {
    const trips = await start(binary, ["--controllers=ttl-after-finished-controller"]);
    context.after(() => trips.stop());
    const careful = await collect(trips, ["--ui-orders", "--breaker-max-deletions=1"]);
    context.after(() => careful.stop());
    const second = await browse(careful, chromium, executable);
    await trips.must("POST", "/api/v1/namespaces", { metadata: { name: "shop" } });
    context.after(() => second.browser.close());
    const page = await second.open();
    await page.getByText("Acting", { exact: true }).waitFor({ timeout: PATIENCE });
    await (await cascade(trips, 5, "shop", "tree"))();
    await page.reload();
    await page.getByText("The circuit breaker has stopped the collection of configmaps.").waitFor({ timeout: PATIENCE });
    assert.equal(await page.locator(".mode").innerText(), "Acting, 1 stopped");
    const banner = page.locator(".banner.stopped");
    assert.equal(await banner.locator("code").innerText(), "kubegc resume --resource configmaps");
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    assert.deepEqual(found.violations.map(({ id }) => id), []);
    const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubegc-garbage-collector";
    const note = async () => (await trips.ask("GET", lease)).body.metadata.annotations["kubegc.io/tripped"] ?? "";
    for (const end = Date.now() + PATIENCE; !(await note()).includes("configmaps"); ) assert.ok(Date.now() < end, "it is noted on the Lease");
    // The breaker allows one more deletion, and then trips again.
    const first = await note();
    await banner.getByRole("button", { name: "Resume configmaps" }).click();
    for (const end = Date.now() + PATIENCE; (await note()) === first; ) assert.ok(Date.now() < end, "it is resumed");
    clean(page);
    await page.context().close();
  });

  await context.test("nothing is said to be so while the API server does not answer", async () => {
    const lost = await start(binary, ["--controllers=ttl-after-finished-controller"]);
    const alone = await collect(lost);
    context.after(() => alone.stop());
    const own = await browse(alone, chromium, executable);
    context.after(() => own.browser.close());
    const page = await own.open();
    await page.getByText("Acting", { exact: true }).waitFor({ timeout: PATIENCE });
    await page.getByText("Nothing is stuck").first().waitFor({ timeout: PATIENCE });
    await lost.stop();
    const shown = page.locator("body");
    await page.getByRole("alert").first().waitFor({ timeout: 2 * PATIENCE });
    assert.equal(await page.locator(".mode").innerText(), "Not known");
    assert.ok(!/Nothing is stuck|Acting/.test(await shown.innerText()), await shown.innerText());
    await page.getByText(/^Nothing was stuck at \d/).first().waitFor({ timeout: PATIENCE });
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    assert.deepEqual(found.violations.map(({ id }) => id), []);
    await page.context().close();
  });

  await context.test("a paused collector is shown as one", async () => {
    const page = await open();
    await page.getByText("Acting", { exact: true }).waitFor({ timeout: PATIENCE });
    const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubegc-garbage-collector";
    const patch = (paused) =>
      cluster.ask("PATCH", lease, { body: { metadata: { annotations: { "kubegc.io/paused": paused } } }, headers: { "content-type": "application/merge-patch+json" } });
    assert.equal((await patch("maintenance")).code, 200);
    await page.getByText("The collectors are paused").waitFor({ timeout: PATIENCE });
    assert.equal(await page.getByRole("button", { name: "Resume" }).count(), 0, "the page takes no orders");
    assert.equal((await patch(null)).code, 200);
    await page.getByText("Acting", { exact: true }).waitFor({ timeout: PATIENCE });
    await page.context().close();
  });
});

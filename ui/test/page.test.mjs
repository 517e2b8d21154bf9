// Tests the page in a browser, against `kubegc up`: node test/page.test.mjs [FILTER]. Needs Chromium and the binary.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import http from "node:http";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { browse, cascade, folder, furnish, network, start } from "./cluster.mjs";
import { watch } from "./frames.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const binary = process.env.KUBEGC ?? join(here, "../../target/debug/kubegc");
const executable = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const axe = readFileSync(join(here, "../node_modules/axe-core/axe.min.js"), "utf8");
// A generous bound: a test waits this long only if it fails anyway.
const PATIENCE = 60_000;

/** Returns the violations of accessibility rules on the page in its current state. */
async function violations(page) {
  // The page's policy blocks foreign scripts, but not the browser's own tools.
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).join(", ")}`);
}

test("the page", { timeout: 600_000 }, async (context) => {
  assert.ok(existsSync(binary), `${binary} is not there: cargo build -p kubegc`);
  const cluster = await start(binary);
  context.after(() => cluster.stop());
  await furnish(cluster);
  // A user with permission to read one namespace.
  await cluster.must("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/bank/roles", {
    metadata: { name: "reader" },
    rules: [{ apiGroups: [""], resources: ["configmaps"], verbs: ["get", "list"] }],
  });
  await cluster.must("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/bank/rolebindings", {
    metadata: { name: "ann" },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "reader" },
    subjects: [{ kind: "User", name: "ann", apiGroup: "rbac.authorization.k8s.io" }],
  });
  const { browser, open, link } = await browse(cluster, chromium, executable);
  context.after(() => browser.close());
  const clean = (page) => assert.deepEqual({ errors: page.errors, elsewhere: page.elsewhere }, { errors: [], elsewhere: [] });

  await context.test("first screen: stuck with its root cause, due, and nothing to object to", async () => {
    for (const dark of [false, true]) {
      const page = await open({ dark });
      await page.getByText("search.example.com/release-index").first().waitFor({ timeout: PATIENCE });
      const stuck = page.getByRole("region", { name: "Stuck" });
      assert.match(await stuck.innerText(), /ConfigMap\/cart-index/);
      assert.match(await stuck.locator("code").first().innerText(), /^kubectl /);
      const due = await page.getByRole("region", { name: "Due in the next 24 hours" }).innerText();
      assert.match(due, /import-0412/);
      assert.match(due, /Job ttlSecondsAfterFinished 1800/);
      assert.match(due, /in 3h\s+Image\s+registry\.example\/shop\/web:v41\s+unused on node-1 for the maximum age/);
      const nodes = await page.getByRole("region", { name: "Freed on nodes" }).innerText();
      assert.match(nodes, /1\.2 GiB on 2 nodes: 4 images, 12 containers, 3 sandboxes, 4 logs/);
      assert.match(nodes, /node-1\s+4 images, 12 containers, 3 sandboxes, 4 logs\s+2 images due\s+1\.2 GiB/);
      assert.equal(await page.locator(".mode").innerText(), "Acting");
      assert.deepEqual(await violations(page), []);
      clean(page);
      await page.context().close();
    }
  });

  await context.test("the link of an alert opens the root causes of its code", async () => {
    const page = await open();
    await page.goto(`${cluster.url}/ui#/?stuck=FinalizerHeld`);
    const stuck = page.getByRole("region", { name: "Stuck" });
    const row = stuck.locator(".stuck-row", { hasText: "Finalizer held" }).first();
    await row.locator("[aria-expanded=true]").waitFor({ timeout: PATIENCE });
    assert.equal(await stuck.getByRole("status").count(), 0);
    await page.goto(`${cluster.url}/ui#/?stuck=NodeGone`);
    await stuck.getByRole("status").waitFor({ timeout: PATIENCE });
    assert.match(await stuck.getByRole("status").innerText(), /^Node gone: nothing/);
    // A user who navigates away from it has seen it.
    await page.keyboard.press("2");
    await page.keyboard.press("1");
    await stuck.getByRole("status").waitFor({ state: "detached", timeout: PATIENCE });
    assert.deepEqual(await violations(page), []);
    clean(page);
    await page.close();
  });

  await context.test("what frees many objects by force is shown for each of the first, and counted for the others", async () => {
    const names = Array.from({ length: 8 }, (_, number) => `forced-${number}`);
    for (const name of names) {
      await cluster.must("POST", "/api/v1/namespaces/shop/configmaps", { metadata: { name, finalizers: ["forced.example.com/hold"] } });
      await cluster.must("DELETE", `/api/v1/namespaces/shop/configmaps/${name}`);
    }
    const page = await open();
    await page.goto(`${cluster.url}/ui#/?stuck=FinalizerHeld`);
    const row = page.getByRole("region", { name: "Stuck" }).locator(".stuck-row", { hasText: "forced.example.com/hold" });
    await row.getByText("and 7 more objects").waitFor({ timeout: PATIENCE });
    await row.getByText("Remove by force").click();
    assert.equal(await row.locator(".force code").count(), 6);
    await row.getByText("and likewise for 2 more objects").waitFor({ timeout: PATIENCE });
    clean(page);
    await page.close();
    const freed = { body: { metadata: { finalizers: null } }, headers: { "content-type": "application/merge-patch+json" } };
    for (const name of names) await cluster.ask("PATCH", `/api/v1/namespaces/shop/configmaps/${name}`, freed);
  });

  await context.test("a plan on the page says all that the command line says of it", async () => {
    const page = await open();
    const more = {
      refused: ["Secret/key: the policy acme refuses it"],
      lostWhenReleased: [{ name: "pv-late", claim: "shop/data", bytes: 2 ** 30 }],
      webhooks: ["admission webhook check.acme.dev of checks, about 2 objects"],
      retainedVolumes: ["pv-kept"],
      assumedLiving: ["Widget/w of acme.dev"],
    };
    await page.route("**/kubegc/v1/plan?*", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), ...more } });
    });
    await page.goto(`${cluster.url}/ui#/?object=configmaps/shop/settings`);
    await page.getByRole("tab", { name: "Plan a deletion" }).click();
    const drawer = page.getByRole("tabpanel");
    for (const line of [...more.refused, "pv-late of claim shop/data, 1 GiB", ...more.webhooks, ...more.retainedVolumes, ...more.assumedLiving]) {
      await drawer.getByText(line, { exact: true }).waitFor({ timeout: PATIENCE });
    }
    assert.deepEqual(await violations(page), []);
    clean(page);
    await page.close();
  });

  await context.test("a banner says that too many machines are missing to delete a node", async () => {
    const page = await open();
    await page.route("**/kubegc/v1/overview*", async (route) => {
      const response = await route.fetch();
      const overview = await response.json();
      await route.fulfill({ response, json: { ...overview, nodeBreaker: { missing: 4, since: overview.now } } });
    });
    await page.reload();
    const banner = page.locator(".banner.nodes");
    await banner.waitFor({ timeout: PATIENCE });
    assert.match(await banner.innerText(), /^No node is deleted, for .*4 machines are missing/);
    assert.equal(await page.locator(".mode").innerText(), "Acting, 1 stopped");
    assert.deepEqual(await violations(page), []);
    clean(page);
    await page.close();
  });

  await context.test("the printed link opens the page once", async () => {
    const printed = /https:\S+login\?token=\S+/.exec(cluster.printed())[0];
    const one = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
    await one.goto(printed);
    await one.getByRole("heading", { name: "Stuck" }).waitFor({ timeout: PATIENCE });
    assert.ok(!one.url().includes("token"), one.url());
    const other = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
    assert.equal((await other.goto(printed)).status(), 401);
    await other.getByText("A link opens this page").waitFor();
    await other.getByRole("alert").getByText("This link opens nothing.").waitFor();
    await other.getByRole("button", { name: `Copy: kubegc ui --collector ${new URL(cluster.url).host}` }).waitFor();
    assert.deepEqual(await violations(other), []);
    // A user who opens the page without a link must not see an error about a bad one.
    await other.goto(`${cluster.url}/ui`);
    await other.getByText("A link opens this page").waitFor();
    assert.equal(await other.getByRole("alert").count(), 0);
    await one.context().close();
    await other.context().close();
  });

  await context.test("live feed during a cascade, also narrow", async () => {
    const page = await open({ width: 390, height: 844, path: "#/feed" });
    await page.getByText("Live", { exact: true }).waitFor({ timeout: PATIENCE });
    await (await cascade(cluster, 300))();
    await page.getByText(/more changes/).first().waitFor({ timeout: PATIENCE });
    await page.locator(".feed-line").first().waitFor({ timeout: PATIENCE });
    assert.match(await page.locator(".feed-lines").innerText(), /Owners absent · ConfigMap\/tree-300/);
    assert.ok((await page.locator(".feed-lines > li").count()) <= 200);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing is cut off");
    assert.deepEqual(await violations(page), []);
    // The server also searches changes that it never sent to the page.
    const shown = await page.locator(".feed-lines").innerText();
    const unsent = Array.from({ length: 300 }, (_, number) => `tree-300-${number}`).find((name) => !new RegExp(`${name}\\b`).test(shown));
    await page.getByRole("searchbox").fill(`${unsent} ownersabsent`);
    await page.locator(".feed-line").getByText(unsent, { exact: true }).waitFor({ timeout: PATIENCE });
    await page.getByRole("searchbox").fill("tree-300");
    await page.getByText(/^\d+ more changes: \d+ configmaps$/).first().waitFor({ timeout: PATIENCE });
    await page.getByRole("searchbox").fill("tree-300-1 nothing-like-it");
    await page.getByText("Nothing fits").waitFor();
    clean(page);
    await page.context().close();
  });

  await context.test("map, and the plan drawn onto it before anything is deleted", async () => {
    const page = await open({ path: "#/map?namespace=shop" });
    const web = page.getByRole("button", { name: /^Deployment web, 0\/6, living/ });
    await web.waitFor({ timeout: PATIENCE });
    await web.focus();
    await page.keyboard.press("ArrowRight");
    assert.match(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), /^ReplicaSet web-/);
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "web" }).waitFor();
    await page.getByRole("tab", { name: "Plan a deletion" }).click();
    await page.getByText("9 objects: 6 Pods, 2 ReplicaSets, 1 Deployment").waitFor({ timeout: PATIENCE });
    await page.locator(".node.fate-Deleted").nth(8).waitFor({ timeout: PATIENCE });
    assert.equal(await page.locator(".node.fate-Deleted").count(), 9);
    assert.equal(await page.getByRole("button", { name: /^Deployment web, 0\/6, living, plan: deleted$/ }).count(), 1);
    await page.getByText("Orphan", { exact: true }).click();
    await page.getByText("1 object: 1 Deployment; 2 released").waitFor({ timeout: PATIENCE });
    await page.locator(".node.fate-Released").nth(1).waitFor({ timeout: PATIENCE });
    assert.equal(await page.locator(".node.fate-Released").count(), 2);
    assert.deepEqual(await violations(page), []);
    assert.equal((await cluster.ask("GET", "/apis/apps/v1/namespaces/shop/deployments/web")).code, 200, "nothing was deleted");
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { name: "web", exact: true }).waitFor({ state: "hidden" });
    clean(page);
    await page.context().close();
  });

  await context.test("several owners are several edges, blocking ones are marked, many alike are one node", async () => {
    await cascade(cluster, 150, "bank", "ledgers");
    const page = await open({ path: "#/map?namespace=shop" });
    const drawn = async (name) => {
      await page.getByRole("button", { name, exact: true }).waitFor({ timeout: PATIENCE });
      return [await page.locator(".canvas .edge").count(), await page.locator(".canvas .edge.blocking").count()];
    };
    const map = (await cluster.ask("GET", "/kubegc/v1/map?namespace=shop")).body;
    const rendered = map.nodes.findIndex(({ object }) => object.name === "rendered");
    const owners = map.edges.filter(({ dependent }) => dependent === rendered);
    assert.deepEqual(owners.map(({ owner, blocking }) => [map.nodes[owner].object.name, blocking]).sort(), [["settings", true], ["theme", false]]);
    assert.deepEqual(await drawn("ConfigMap rendered, living"), [map.edges.length, map.edges.filter(({ blocking }) => blocking).length]);
    // The keyboard alone reaches the search, and leaves it.
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Kind, name or namespace" }).waitFor();
    assert.deepEqual(await violations(page), []);
    await page.keyboard.press("Escape");
    await page.goto(`${cluster.url}/ui#/map?namespace=bank`);
    await drawn("ConfigMap 150 objects, living");
    // Focus and press the key in one step, because the map may be redrawn between two.
    await page.getByRole("button", { name: "ConfigMap 150 objects, living", exact: true }).press("Enter");
    // The group is replaced by sixty members, of which the first has the focus, and a smaller group of the others.
    await drawn("ConfigMap 90 objects, living");
    assert.equal(await page.getByRole("button", { name: /^ConfigMap ledgers-\d+, living$/ }).count(), 60);
    await page.waitForFunction(() => /^ConfigMap ledgers-/.test(document.activeElement.getAttribute("aria-label") ?? ""));
    assert.deepEqual(await violations(page), []);
    await page.getByRole("button", { name: "Fold groups" }).click();
    await drawn("ConfigMap 150 objects, living");
    clean(page);
    await page.context().close();
  });

  await context.test("a deletion is confirmed by name, and followed", async () => {
    await cascade(cluster, 15, "shop", "album");
    const page = await open();
    await page.getByRole("button", { name: /Search/ }).click();
    const found = page.getByRole("option", { name: "ConfigMap album shop", exact: true });
    // The server caches views for a while, so the first response may be older than the object.
    for (const end = Date.now() + PATIENCE; !(await found.isVisible()) && Date.now() < end; ) {
      await page.getByRole("combobox", { name: "Kind, name or namespace" }).fill("");
      await page.getByRole("combobox", { name: "Kind, name or namespace" }).fill("configmap album");
      await found.waitFor({ timeout: 1000 }).catch(() => undefined);
    }
    await found.waitFor({ timeout: PATIENCE });
    await page.keyboard.press("Enter");
    await page.getByRole("tab", { name: "Plan a deletion" }).click();
    await page.getByRole("button", { name: "Delete 16 objects…" }).click({ timeout: PATIENCE });
    const button = page.getByRole("button", { name: "Delete 16 objects", exact: true });
    assert.ok(await button.isDisabled());
    await page.keyboard.type("album");
    await button.click();
    await page.getByText("Deleted.").waitFor({ timeout: PATIENCE });
    assert.equal((await cluster.ask("GET", "/api/v1/namespaces/shop/configmaps/album-3")).code, 404);
    // The drawer queries an object that is already gone.
    page.errors = page.errors.filter((error) => !error.includes("status of 404"));
    clean(page);
    await page.context().close();
  });

  await context.test("a deletion of more objects than a plan names: what is stuck is drawn, shown and followed", async () => {
    await cluster.must("POST", "/api/v1/namespaces", { metadata: { name: "tall" } });
    await cascade(cluster, 1100, "tall", "tower");
    const maps = "/api/v1/namespaces/tall/configmaps";
    const tower = await cluster.must("GET", `${maps}/tower`);
    const ownerReferences = [{ apiVersion: "v1", kind: "ConfigMap", name: "tower", uid: tower.metadata.uid }];
    await cluster.must("POST", maps, { metadata: { name: "zz-held", finalizers: ["search.example.com/release-tower"], ownerReferences } });
    const page = await open({ path: "#/map?namespace=tall&object=configmaps/tall/tower" });
    await page.getByRole("tab", { name: "Plan a deletion" }).click({ timeout: PATIENCE });
    await page.getByText("1,102 objects: 1,102 ConfigMaps; 1 stuck").waitFor({ timeout: PATIENCE });
    const groups = await page.locator(".plan-items").innerText();
    assert.match(groups, /Deleted\s+1,101 ConfigMaps[\s\S]*Stuck\s+1 ConfigMap\s+zz-held/);
    for (const name of ["ConfigMap 1,100 objects, living, plan: deleted", "ConfigMap zz-held, 1 finalizer, living, plan: stuck", "ConfigMap tower, living, plan: deleted"]) {
      await page.getByRole("button", { name, exact: true }).waitFor({ timeout: PATIENCE });
    }
    assert.deepEqual(await violations(page), []);
    await page.getByRole("button", { name: "Delete 1,102 objects…" }).click();
    // Escape closes the confirmation, but not the object.
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Delete 1,102 objects…" }).click({ timeout: PATIENCE });
    await page.keyboard.type("tower");
    await page.getByRole("button", { name: "Delete 1,102 objects", exact: true }).click();
    const following = page.locator(".following");
    await following.getByText("1 object stuck.").waitFor({ timeout: 4 * PATIENCE });
    assert.match(await following.innerText(), /1,101 of 1,102 objects gone[\s\S]*What holds them[\s\S]*ConfigMap\/zz-held/);
    assert.deepEqual(await violations(page), []);
    await cluster.ask("PATCH", `${maps}/zz-held`, { body: { metadata: { finalizers: null } }, headers: { "content-type": "application/merge-patch+json" } });
    await following.getByText("Deleted.").waitFor({ timeout: PATIENCE });
    // The drawer queries an object that is already gone.
    page.errors = page.errors.filter((error) => !error.includes("status of 404"));
    clean(page);
    await page.context().close();
  });

  await context.test("a finalizer is released after its assessment, wide and narrow, and against a living controller only by an override", async () => {
    const maps = "/api/v1/namespaces/shop/configmaps";
    const finalizers = ["search.example.com/first", "search.example.com/second"];
    for (const [name, width, height] of [["held-wide", 1440, 900], ["held-narrow", 390, 844]]) {
      await cluster.must("POST", maps, { metadata: { name, finalizers } });
      await cluster.must("DELETE", `${maps}/${name}`);
      const page = await open({ width, height, path: `#/?object=configmaps/shop/${name}` });
      await page.getByRole("button", { name: `Release ${finalizers[1]}…` }).click({ timeout: PATIENCE });
      const panel = page.locator(".release");
      await panel.getByText(`ConfigMap/${name} still waits for ${finalizers[0]}`).waitFor({ timeout: PATIENCE });
      assert.match(await panel.innerText(), /Lives\s+no: no workload, Lease or field manager/);
      assert.deepEqual(await violations(page), []);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing is cut off");
      const drawer = await page.locator(".drawer").boundingBox();
      for (const part of await panel.locator("dd, button").all()) {
        const box = await part.boundingBox();
        assert.ok(box.x >= drawer.x && box.x + box.width <= drawer.x + drawer.width, await part.innerText());
      }
      // Escape leaves the confirmation alone.
      await panel.getByRole("button", { name: "Remove the finalizer…" }).click();
      await page.keyboard.press("Escape");
      await panel.getByRole("button", { name: "Remove the finalizer…" }).click();
      assert.deepEqual(await violations(page), []);
      assert.deepEqual((await cluster.must("GET", `${maps}/${name}`)).metadata.finalizers, finalizers, "nothing is removed before it is confirmed");
      await panel.getByRole("button", { name: "Remove it" }).click();
      await page.getByText(`${finalizers[1]} was removed.`).waitFor({ timeout: PATIENCE });
      await page.getByRole("button", { name: `Release ${finalizers[1]}…` }).waitFor({ state: "detached", timeout: PATIENCE });
      assert.deepEqual((await cluster.must("GET", `${maps}/${name}`)).metadata.finalizers, [finalizers[0]]);
      await page.getByRole("tab", { name: "Journal" }).click();
      const journal = page.getByRole("tabpanel");
      await journal.getByText("Released by hand · by admin").waitFor({ timeout: PATIENCE });
      await journal.getByRole("button", { name: /^Evidence for/ }).click();
      await journal.getByText(`admin removed the finalizer ${finalizers[1]}`).waitFor({ timeout: PATIENCE });
      assert.deepEqual(await violations(page), []);
      clean(page);
      await page.context().close();
      await cluster.ask("PATCH", `${maps}/${name}`, { body: { metadata: { finalizers: null } }, headers: { "content-type": "application/merge-patch+json" } });
    }
    // The collector of this server holds the owner: its finalizer goes only against the objection.
    const root = await cluster.must("POST", maps, { metadata: { name: "awaited" } });
    const ownerReferences = [{ apiVersion: "v1", kind: "ConfigMap", name: "awaited", uid: root.metadata.uid, blockOwnerDeletion: true }];
    await cluster.must("POST", maps, { metadata: { name: "awaited-leaf", ownerReferences, finalizers: ["search.example.com/leaf"] } });
    await cluster.must("DELETE", `${maps}/awaited`, { propagationPolicy: "Foreground" });
    const page = await open({ path: "#/?object=configmaps/shop/awaited" });
    await page.getByRole("button", { name: "Release foregroundDeletion…" }).click({ timeout: PATIENCE });
    const remove = page.getByRole("button", { name: "Remove the finalizer…" });
    await page.getByText(/Not removed by this page: the controller of foregroundDeletion lives/).waitFor({ timeout: PATIENCE });
    assert.ok(await remove.isDisabled());
    await page.getByLabel("Remove it all the same").check();
    await remove.click();
    await page.getByRole("button", { name: "Remove it", exact: true }).click();
    await page.getByText("It is gone").waitFor({ timeout: PATIENCE });
    // The drawer asks about an object that is gone by now.
    page.errors = page.errors.filter((error) => !error.includes("status of 404"));
    clean(page);
    await page.context().close();
    await cluster.ask("PATCH", `${maps}/awaited-leaf`, { body: { metadata: { finalizers: null } }, headers: { "content-type": "application/merge-patch+json" } });
  });

  await context.test("a namespace is planned with everything in it, and one that is not there is said not to be", async () => {
    const page = await open({ path: "#/?object=namespaces//bank" });
    await page.getByRole("tab", { name: "Plan a deletion" }).click({ timeout: PATIENCE });
    await page.getByText("Delete the namespace and everything in it.").waitFor({ timeout: PATIENCE });
    assert.equal(await page.getByText("Orphan", { exact: true }).count(), 0);
    await page.goto(`${cluster.url}/ui#/map?namespace=nowhere`);
    await page.getByText("There is no namespace nowhere").waitFor({ timeout: PATIENCE });
    page.errors = page.errors.filter((error) => !error.includes("status of 404"));
    clean(page);
    await page.context().close();
  });

  await context.test("keys are shown, and a clipboard that refuses is not said to have copied", async () => {
    const page = await open();
    await page.getByRole("heading", { name: "Stuck" }).waitFor({ timeout: PATIENCE });
    await page.keyboard.press("?");
    await page.getByRole("heading", { name: "Keys" }).waitFor();
    assert.deepEqual(await violations(page), []);
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { name: "Keys" }).waitFor({ state: "detached" });
    await page.evaluate(() => (navigator.clipboard.writeText = () => Promise.reject(new Error("refused"))));
    const command = page.getByRole("region", { name: "Stuck" }).locator(".command").first();
    await command.getByRole("button").click();
    await command.getByText("Not copied").waitFor();
    assert.equal(await page.evaluate(() => getSelection().toString()), await command.locator("code").innerText());
    clean(page);
    await page.context().close();
  });

  await context.test("narrow: names can be read, and an object is shown on the map", async () => {
    const page = await open({ width: 390, height: 844 });
    const due = page.getByRole("region", { name: "Due in the next 24 hours" });
    await due.getByText("import-0412").waitFor({ timeout: PATIENCE });
    for (const name of await due.locator(".line .name").all()) {
      const box = await name.boundingBox();
      assert.ok(box.width > 40, `${await name.innerText()} is ${box.width} pixels wide`);
    }
    await page.goto(`${cluster.url}/ui#/?object=deployments.apps/shop/web`);
    await page.getByRole("tab", { name: "Plan a deletion" }).click({ timeout: PATIENCE });
    await page.getByText(/objects: 6 Pods/).waitFor({ timeout: PATIENCE });
    await page.getByRole("button", { name: "Show on map" }).click();
    const node = page.getByRole("button", { name: /^Deployment web, 0\/6, living, plan: deleted$/ });
    await node.waitFor({ timeout: PATIENCE });
    const covering = await node.evaluate((element) => {
      const box = element.getBoundingClientRect();
      return !element.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2));
    });
    assert.equal(covering, false, "nothing lies over the map");
    assert.ok((await node.boundingBox()).height > 30, "it can be read");
    assert.deepEqual(await violations(page), []);
    await page.getByRole("button", { name: "Show the object" }).click();
    await page.getByText(/objects: 6 Pods/).waitFor();
    clean(page);
    await page.context().close();
  });

  await context.test("a link on another site leads to the page and its place, and a frame stays empty", async () => {
    const elsewhere = http.createServer((request, response) => {
      response.setHeader("content-type", "text/html");
      const target = `${cluster.url}/ui#/map?namespace=bank`;
      response.end(request.url === "/frame" ? `<iframe src="${target}"></iframe>` : `<a href="${target}">bank</a>`);
    });
    await new Promise((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
    // A different host is a different site.
    const site = `http://localhost:${elsewhere.address().port}`;
    const page = await open();
    await page.goto(site);
    await page.getByRole("link").click();
    await page.getByRole("heading", { name: "Ownership in bank" }).waitFor({ timeout: PATIENCE });
    assert.equal(page.url(), `${cluster.url}/ui#/map?namespace=bank`);
    await page.goto(`${site}/frame`);
    const frame = page.frames()[1];
    assert.ok(!frame || !/kubegc/.test(await frame.content().catch(() => "")), "framing is refused");
    await page.goto(`${cluster.url}/ui`);
    await page.getByRole("heading", { name: "Stuck" }).waitFor({ timeout: PATIENCE });

    // Without a session, the page keeps the route until a session is opened in another tab.
    const late = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
    await late.goto(site);
    await late.getByRole("link").click();
    await late.getByText("A link opens this page").waitFor({ timeout: PATIENCE });
    const other = await late.context().newPage();
    await other.goto(await link());
    await other.getByRole("heading", { name: "Stuck" }).waitFor({ timeout: PATIENCE });
    await late.bringToFront();
    await late.getByRole("heading", { name: "Ownership in bank" }).waitFor({ timeout: PATIENCE });
    await late.context().close();
    await page.context().close();
    await new Promise((resolve) => (elsewhere.closeAllConnections(), elsewhere.close(resolve)));
  });

  await context.test("two pages on one host keep their sessions", async () => {
    const second = await start(binary);
    const page = await open();
    await page.getByRole("heading", { name: "Stuck" }).waitFor({ timeout: PATIENCE });
    const other = await page.context().newPage();
    await other.goto((await second.ask("POST", "/kubegc/v1/link", { body: {} })).body.url);
    await other.getByRole("heading", { name: "Stuck" }).waitFor({ timeout: PATIENCE });
    await page.reload();
    await page.getByRole("heading", { name: "Stuck" }).waitFor({ timeout: PATIENCE });
    await page.context().close();
    await second.stop();
  });

  await context.test("pause and resume", async () => {
    const page = await open();
    await page.getByRole("button", { name: "Pause the collectors" }).click({ timeout: PATIENCE });
    await page.getByLabel("Reason (shown to everyone)").fill("a release");
    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await page.getByText("The collectors are paused").waitFor({ timeout: PATIENCE });
    await (await cascade(cluster, 2, "bank", "held"))();
    await new Promise((resolve) => setTimeout(resolve, 500));
    assert.equal((await cluster.ask("GET", "/api/v1/namespaces/bank/configmaps/held-1")).code, 200, "it is held");
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByText("Acting").waitFor({ timeout: PATIENCE });
    for (const end = Date.now() + PATIENCE; ; ) {
      if ((await cluster.ask("GET", "/api/v1/namespaces/bank/configmaps/held-1")).code === 404) break;
      assert.ok(Date.now() < end, "it continues");
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    clean(page);
    await page.context().close();
  });

  await context.test("a user of one namespace sees that namespace alone", async () => {
    const page = await open({ token: "ann-token" });
    await page.getByRole("combobox", { name: "Namespace" }).locator("option", { hasText: "bank" }).waitFor({ state: "attached", timeout: PATIENCE });
    const text = await page.locator("body").innerText();
    assert.ok(!/shop|cart-index|import-0412|node-1/.test(text), text);
    assert.equal(await page.getByRole("button", { name: "Pause the collectors" }).count(), 0);
    for (const path of ["overview", "overview?namespace=shop", "map?namespace=shop", "search?q=cart", "search?q=web"]) {
      const answer = await cluster.ask("GET", `/kubegc/v1/${path}`, { token: "ann-token" });
      assert.equal(answer.code, 200);
      assert.ok(!/cart-index|import-0412|web-5d8|tree-300|node-1|registry\.example/.test(JSON.stringify(answer.body)), `${path}: ${JSON.stringify(answer.body)}`);
    }
    const seen = (await cluster.ask("GET", "/kubegc/v1/overview", { token: "ann-token" })).body;
    assert.deepEqual(seen.namespaces.map(({ name }) => name), ["bank"]);
    const deletions = seen.collected.reduce((sum, one) => sum + one.total, 0);
    assert.equal(deletions, 2, "those that were held in bank");
    const order = { resource: "configmaps", namespace: "shop", name: "theme", uid: "x", policy: "background", objects: 9, lostVolumes: 0 };
    assert.ok((await cluster.ask("POST", "/kubegc/v1/delete", { body: order, token: "ann-token" })).code >= 400);
    assert.equal((await cluster.ask("POST", "/kubegc/v1/pause", { body: {}, token: "ann-token" })).code, 403);
    await page.context().close();
  });

  await context.test("without a session there is nothing, and other sites are refused", async () => {
    for (const [path, code] of [["/ui", 401], ["/ui/app.js", 401], ["/kubegc/v1/overview", 403], ["/kubegc/v1/feed", 403], ["/kubegc/v1/openapi.json", 403]]) {
      assert.equal((await cluster.ask("GET", path, { token: null })).code, code, path);
    }
    const foreign = { headers: { "sec-fetch-site": "cross-site" } };
    assert.equal((await cluster.ask("GET", "/kubegc/v1/overview", foreign)).code, 403);
    const origin = { body: {}, headers: { origin: "https://evil.example" } };
    assert.equal((await cluster.ask("POST", "/kubegc/v1/pause", origin)).code, 403);
    const { headers } = await cluster.ask("GET", "/ui");
    assert.match(headers["content-security-policy"], /frame-ancestors 'none'/);
    assert.equal(headers["x-frame-options"], "DENY");
    const { headers: opened } = await cluster.ask("GET", new URL(await link()).pathname + new URL(await link()).search, { token: null });
    assert.match(opened["set-cookie"][0], /^__Host-kubegc-\d+=.*; Path=\/; Secure; HttpOnly; SameSite=Strict; Max-Age=3600$/);
    // The Kubernetes API does not accept the cookie.
    const cookie = opened["set-cookie"][0].split(";")[0];
    const with_cookie = { token: null, headers: { cookie } };
    assert.equal((await cluster.ask("GET", "/kubegc/v1/overview", with_cookie)).code, 200);
    assert.equal((await cluster.ask("GET", "/api/v1/secrets", with_cookie)).code, 403);
  });

  await context.test("a session that ends, in the middle", async () => {
    const page = await open();
    await page.getByRole("heading", { name: "Stuck" }).waitFor({ timeout: PATIENCE });
    await page.context().clearCookies();
    await page.reload();
    await page.getByText("A link opens this page").waitFor({ timeout: PATIENCE });
    const again = await open();
    await again.getByText("search.example.com/release-index").first().waitFor({ timeout: PATIENCE });
    await again.evaluate(() => fetch("/kubegc/v1/logout", { method: "POST", body: "{}", headers: { "Content-Type": "application/json" } }));
    // Any change makes the page refresh.
    await (await cascade(cluster, 1, "bank", "late"))();
    await again.getByText("The session has ended").waitFor({ timeout: PATIENCE });
    assert.deepEqual(await violations(again), []);
    await page.context().close();
    await again.context().close();
  });
});

/** Waits until a condition holds. */
async function until(what, holds) {
  for (const end = Date.now() + PATIENCE; !(await holds()); ) {
    assert.ok(Date.now() < end, what);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test("the page when its connection breaks and its server restarts", { timeout: 120_000 }, async (context) => {
  const [home, remove] = folder();
  context.after(remove);
  let cluster = await start(binary, [], home);
  context.after(() => cluster.stop());
  const between = await network(cluster);
  context.after(() => between.close());
  const ask = (...all) => cluster.ask(...all);
  const { browser, open, link } = await browse({ url: between.url, ask }, chromium, executable);
  context.after(() => browser.close());
  for (const name of ["shop", "bank"]) await cluster.must("POST", "/api/v1/namespaces", { metadata: { name } });
  await cluster.must("POST", "/api/v1/namespaces/shop/configmaps", { metadata: { name: "cart-index", finalizers: ["search.example.com/release-index"] } });
  await cluster.must("DELETE", "/api/v1/namespaces/shop/configmaps/cart-index");
  await (await cascade(cluster, 3, "bank", "before"))();
  const page = await open();
  const stuck = page.getByRole("region", { name: "Stuck" });
  const lines = page.locator(".feed-line");
  const named = async (name) => (await lines.allInnerTexts()).filter((text) => text.includes(name)).length;
  const live = () => page.getByText("Live", { exact: true }).waitFor({ timeout: PATIENCE });
  await stuck.getByText("ConfigMap/cart-index").first().waitFor({ timeout: PATIENCE });
  await until("the feed has the cascade", async () => (await named("before-")) === 3);
  await live();

  await context.test("a connection that breaks: the page says so, reconnects, and shows each change once", async () => {
    between.cut();
    await page.getByText("The server does not answer.").waitFor({ timeout: PATIENCE });
    await page.getByText("Reconnecting").waitFor({ timeout: PATIENCE });
    assert.match(await stuck.innerText(), /ConfigMap\/cart-index/, "what was known is still shown");
    assert.deepEqual(await violations(page), []);
    await (await cascade(cluster, 3, "bank", "meanwhile"))();
    await until("it is collected", async () => (await cluster.ask("GET", "/api/v1/namespaces/bank/configmaps/meanwhile-2")).code === 404);
    between.mend();
    await live();
    await page.getByText("The server does not answer.").waitFor({ state: "hidden", timeout: PATIENCE });
    await until("what happened meanwhile is in the feed", async () => (await named("meanwhile-")) === 3);
    assert.equal(await named("before-"), 3);
    assert.equal(await stuck.locator(".stuck-row", { hasText: "search.example.com/release-index" }).count(), 1);
  });

  await context.test("a server that restarts: the session ends, and a new link continues the page that is open", async () => {
    between.cut();
    await cluster.stop();
    await page.getByText("The server does not answer.").waitFor({ timeout: PATIENCE });
    cluster = await start(binary, [], home);
    between.mend(cluster);
    await page.getByText("The session has ended").waitFor({ timeout: PATIENCE });
    assert.match(await page.locator("code", { hasText: "kubegc ui" }).first().innerText(), /^kubegc ui$/);
    await cluster.must("DELETE", "/api/v1/namespaces/bank");
    const other = await page.context().newPage();
    await other.goto(await link());
    await stuck.getByText("ConfigMap/cart-index").first().waitFor({ timeout: PATIENCE });
    await live();
    assert.equal(await stuck.locator(".stuck-row", { hasText: "search.example.com/release-index" }).count(), 1);
    assert.equal(await named("before-") + await named("meanwhile-"), 0, "the feed begins with the server");
    await (await cascade(cluster, 3, "shop", "after"))();
    await until("the feed continues", async () => (await named("after-")) === 3);
    await until("the namespace is gone", async () => (await page.getByRole("combobox", { name: "Namespace" }).locator("option").allInnerTexts()).every((text) => !text.includes("bank")));
    await page.context().close();
  });
});

/** Limits for pages during a cascade. */
const FRAMES_PER_SECOND = 30;
const HEAP_GROWTH_MIB = 4;

test("a cascade of 10,000 objects is fluent to watch, and the memory of the page stays flat", { timeout: 300_000 }, async (context) => {
  const cluster = await start(binary);
  context.after(() => cluster.stop());
  await cluster.must("POST", "/api/v1/namespaces", { metadata: { name: "shop" } });
  const { browser, open } = await browse(cluster, chromium, executable);
  context.after(() => browser.close());
  const views = ["#/", "#/map?namespace=shop"];
  const pages = await Promise.all(views.map((path) => open({ path })));
  const { seconds, pages: measured } = await watch(cluster, pages, 10_000, "tree");
  for (const [place, { framesPerSecond, slowest, worst, heap }] of measured.entries()) {
    const report = `${views[place]}: ${framesPerSecond.toFixed(1)} frames a second (${slowest} in the slowest one, the longest took ${worst.toFixed(0)} ms) for ${seconds.toFixed(1)} s, heap ${heap.map((size) => size.toFixed(1)).join(" → ")} MiB`;
    context.diagnostic(report);
    assert.ok(framesPerSecond >= FRAMES_PER_SECOND && heap[1] - heap[0] <= HEAP_GROWTH_MIB, report);
  }
});

// Tests the plugin for Headlamp in a browser, against `kubegc up`: node test/headlamp.test.mjs. A stand-in replaces Headlamp: it provides what the
// plugin uses (React by Preact's compatible build), and passes requests on with a user's token, as Headlamp does.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { chromium } from "playwright-core";
import { browse, furnish, start } from "./cluster.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const binary = process.env.KUBEGC ?? join(here, "../../target/debug/kubegc");
const executable = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const plugin = readFileSync(join(here, "../../deploy/headlamp/kubegc/main.js"), "utf8");

const HOST = `
  import * as React from "preact/compat";
  import * as ReactJSX from "preact/compat/jsx-runtime";
  const h = React.createElement;
  const registered = { routes: [], entries: [], sections: [], filters: [], settings: [] };
  globalThis.pluginLib = {
    React,
    ReactJSX,
    CommonComponents: {
      SectionBox: ({ title, children }) => h("section", { "aria-label": title }, h("h2", null, title), children),
      NameValueTable: ({ rows }) => h("dl", null, rows.map(({ name, value }) => [h("dt", null, name), h("dd", null, value)])),
      SimpleTable: ({ columns, data, emptyMessage }) =>
        data.length === 0
          ? h("p", null, emptyMessage)
          : h("table", null, data.map((row) => h("tr", null, columns.map(({ getter }) => h("td", null, getter(row)))))),
      Loader: ({ title }) => h("p", null, title),
    },
    ApiProxy: { request: (path, parameters, logsOut) => globalThis.ask(path, parameters, logsOut).then(JSON.parse) },
    registerRoute: (route) => registered.routes.push(route),
    registerSidebarEntry: (entry) => registered.entries.push(entry),
    registerSidebarEntryFilter: (filter) => registered.filters.push(filter),
    registerPluginSettings: (name, component) => registered.settings.push({ name, component }),
    ConfigStore: class {
      get() {
        return globalThis.set;
      }
      useConfig() {
        return () => globalThis.set;
      }
    },
    Utils: { getCluster: () => globalThis.cluster ?? "here" },
    registerDetailsViewSection: (section) => registered.sections.push(section),
  };
  globalThis.registered = registered;
  globalThis.show = (component, properties) => React.render(h(component, properties), document.body);
`;

test("the plugin for Headlamp", { timeout: 120_000 }, async (context) => {
  const cluster = await start(binary);
  context.after(() => cluster.stop());
  await furnish(cluster);
  const { browser } = await browse(cluster, chromium, executable);
  context.after(() => browser.close());
  const bundled = await build({ stdin: { contents: HOST, resolveDir: here }, bundle: true, write: false, format: "iife" });
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  let token = "administrator-token";
  const asked = [];
  let answered = 0;
  await page.exposeFunction("ask", async (path, parameters, logsOut) => {
    asked.push({ path, ...parameters, logsOut });
    const answer = await cluster.ask("GET", path, { token }).finally(() => setTimeout(() => (answered += 1)));
    if (answer.code !== 200) throw new Error(answer.body.message);
    return JSON.stringify(answer.body);
  });
  await page.addScriptTag({ content: bundled.outputFiles[0].text });
  await page.addScriptTag({ content: plugin });

  await context.test("the page of its own shows what is stuck and due", async () => {
    assert.deepEqual(await page.evaluate(() => globalThis.registered.entries.map(({ name, url }) => [name, url])), [["kubegc", "/kubegc"]]);
    assert.equal(await page.evaluate(() => globalThis.registered.routes[0].path), "/kubegc");
    await page.evaluate(() => globalThis.show(globalThis.registered.routes[0].component));
    const stuck = page.getByRole("region", { name: "Stuck (1)" });
    await stuck.getByText("ConfigMap/cart-index").waitFor();
    assert.match(await stuck.locator("pre").first().innerText(), /^kubectl /);
    assert.match(await page.getByRole("region", { name: "Due" }).innerText(), /Job\/import-0412/);
  });

  await context.test("the details of an object say why it is deleted, or not", async () => {
    const show = (jsonData, cluster) =>
      page.evaluate(([jsonData, cluster]) => globalThis.show(() => globalThis.registered.sections[0]({ resource: { jsonData, cluster } })), [jsonData, cluster]);
    await show({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "cart-index", namespace: "shop" } }, "here");
    await page.getByText("search.example.com/release-index").first().waitFor();
    await show({ apiVersion: "apps/v1", kind: "Deployment", metadata: { name: "web", namespace: "shop" } }, "here");
    await page.getByText("It will not be collected").waitFor();
    const last = asked.at(-1);
    assert.deepEqual(last, { path: "/kubegc/v1/object?resource=deployment.apps&namespace=shop&name=web", method: "GET", cluster: "here", logsOut: false });
  });

  /** Reports whether the sidebar has the entry, after the cluster has answered. */
  const hasEntry = async (cluster) => {
    const filtered = () => page.evaluate((cluster) => ((globalThis.cluster = cluster), !!globalThis.registered.filters[0](globalThis.registered.entries[0])), cluster);
    const before = answered;
    if (await filtered()) return true;
    while (answered === before) await page.waitForTimeout(20);
    return filtered();
  };

  await context.test("the sidebar has its entry where kubegc answers", async () => {
    assert.equal(await hasEntry("here"), true);
  });

  await context.test("without the API, the details stay as they are", async () => {
    token = "nobody";
    await page.evaluate(() =>
      globalThis.show(() => globalThis.registered.sections[0]({ resource: { jsonData: { apiVersion: "v1", kind: "Pod", metadata: { name: "other", namespace: "shop" } } } })),
    );
    const before = asked.length;
    while (asked.length === before) await page.waitForTimeout(20);
    assert.equal(await page.getByRole("region").count(), 0);
    assert.equal(await hasEntry("elsewhere"), false);
  });

  await context.test("where the address of the page is set, links lead there", async () => {
    const [{ name }] = await page.evaluate(() => globalThis.registered.settings.map(({ name }) => ({ name })));
    assert.equal(name, "kubegc");
    await page.evaluate(() => {
      globalThis.set = { page: "https://gc.example.com/" };
      globalThis.show(globalThis.registered.settings[0].component, { data: globalThis.set });
    });
    assert.equal(await page.getByRole("textbox").inputValue(), "https://gc.example.com/");
    assert.equal(await hasEntry("elsewhere"), true);
    const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "other", namespace: "shop" } };
    await page.evaluate((jsonData) => globalThis.show(() => globalThis.registered.sections[0]({ resource: { jsonData } })), pod);
    const link = page.getByRole("link", { name: "Why it is, or is not, deleted" });
    assert.equal(await link.getAttribute("href"), "https://gc.example.com/ui#/?object=pod.%2Fshop%2Fother");
    await page.evaluate(() => {
      // A link never runs a script, whatever the setting.
      globalThis.set = { page: "javascript:alert(1)" };
      globalThis.show(globalThis.registered.routes[0].component);
    });
    await page.getByText("set the address of its page").waitFor();
    assert.equal(await page.getByRole("link").count(), 0);
  });
  assert.deepEqual(errors, []);
});

// Takes the screenshots for docs/page.md: node test/screenshots.mjs [FOLDER]
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { browse, cascade, furnish, start } from "./cluster.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2] ?? join(here, "../../docs/page");
const binary = process.env.KUBEGC ?? join(here, "../../target/debug/kubegc");
mkdirSync(folder, { recursive: true });
const cluster = await start(binary);
try {
  await furnish(cluster);
  await (await cascade(cluster, 60))();
  const { browser, open } = await browse(cluster, chromium, process.env.CHROMIUM ?? "/usr/bin/chromium");
  const plan = async (page) => {
    await page.getByRole("tab", { name: "Plan a deletion" }).click();
    await page.getByText("nothing gets stuck").waitFor();
  };
  for (const [name, width, height, dark, path, act] of [
    ["overview-1440-light", 1440, 960, false, ""],
    ["overview-1440-dark", 1440, 960, true, ""],
    ["plan-1440-light", 1440, 900, false, "#/map?namespace=shop&object=deployments.apps/shop/web", plan],
    ["plan-1440-dark", 1440, 900, true, "#/map?namespace=shop&object=deployments.apps/shop/web", plan],
    ["overview-1024-light", 1024, 768, false, ""],
    ["overview-1024-dark", 1024, 768, true, ""],
    ["overview-390-light", 390, 844, false, ""],
    ["overview-390-dark", 390, 844, true, ""],
    ["object-390-light", 390, 844, false, "#/?object=configmaps/shop/cart-index"],
    ["map-390-dark", 390, 844, true, "#/map?namespace=shop"],
  ]) {
    const page = await open({ width, height, dark, path });
    await page.getByText("cart-index").first().waitFor();
    await page.getByText("Live", { exact: true }).waitFor({ state: path.includes("map") ? "hidden" : "visible" });
    await act?.(page);
    await page.waitForTimeout(800);
    await page.screenshot({ path: join(folder, `${name}.png`) });
    await page.context().close();
  }
  await browser.close();
} finally {
  await cluster.stop();
}

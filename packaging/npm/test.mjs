// What start() promises, run by `scripts/dist test` where the packages are installed.
import assert from "node:assert/strict";
import { existsSync, statSync } from "node:fs";
import { request } from "node:https";
import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { test } from "node:test";
import { NotSettled, start } from "kubegc";

test("a server starts, settles, passes time, and leaves nothing behind", async () => {
  const server = await start({ args: ["--workloads=off"] });
  const folder = dirname(server.kubeconfig);
  try {
    assert.equal(statSync(server.kubeconfig).mode & 0o077, 0);
    assert.equal((await server.settle()).settled, true);
    const before = await server.clock();
    assert.equal(before.ahead, "0s");
    assert.equal((await server.advance("36h")).ahead, "36h0m0s");
    assert.equal((await server.advance(1800)).ahead, "36h30m0s");
    assert.ok(Date.parse((await server.clock()).now) - Date.parse(before.now) >= 36.5 * 3_600_000);
    await server.reset();
    assert.equal((await server.clock()).ahead, "0s");
    await assert.rejects(server.advance("soon"), /is not a duration/);
    const config = await readFile(server.kubeconfig, "utf8");
    assert.ok(config.includes(`server: ${server.url}`), config);
    // The certificate is that of the kubeconfig's authority, and not of one that everybody trusts.
    await assert.rejects(new Promise((resolve, reject) => request(server.url, resolve).on("error", reject).end()));
  } finally {
    await server.stop();
  }
  assert.ok(!existsSync(folder));
});

test("what does not start says why", async () => {
  await assert.rejects(start({ args: ["--no-such-flag"] }), /--no-such-flag/);
  assert.equal(new NotSettled("m", ["a"]).active[0], "a");
});

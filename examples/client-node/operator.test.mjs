// The operator against an API server with every collector; see ../README.md.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ApiextensionsV1Api, BatchV1Api, CoreV1Api, CustomObjectsApi, KubeConfig } from "@kubernetes/client-node";
import { start } from "kubegc";
import { run } from "./operator.mjs";

const PATIENCE_MS = 30_000;
const namespace = "default";
const backups = { group: "example.com", version: "v1", plural: "backups", namespace };

/** What the operator does is known to it alone; what garbage collection does is awaited by `settle()`. */
async function until(what, condition) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await condition())) {
    assert.ok(Date.now() < end, what);
    await sleep(20);
  }
}

/** Whether a read is answered with 404. */
function isAbsent(reading) {
  return reading.then(() => false, (error) => {
    assert.equal(error.code, 404, error);
    return true;
  });
}

test("a Backup from its creation to its deletion", async (t) => {
  const server = await start();
  t.after(() => server.stop());
  const config = new KubeConfig();
  config.loadFromFile(server.kubeconfig);
  const [objects, batch, core] = [CustomObjectsApi, BatchV1Api, CoreV1Api].map((api) => config.makeApiClient(api));
  const body = JSON.parse(await readFile(new URL("../backups.json", import.meta.url), "utf8"));
  await config.makeApiClient(ApiextensionsV1Api).createCustomResourceDefinition({ body });
  await until("the definition is served", async () => !(await isAbsent(objects.listNamespacedCustomObject(backups))));
  const errors = [];
  const stop = await run(server.kubeconfig, namespace, (error) => errors.push(error));
  t.after(stop);

  const create = async (name) => {
    const body = { apiVersion: "example.com/v1", kind: "Backup", metadata: { name }, spec: { bucket: name, keepSeconds: 3600 } };
    await objects.createNamespacedCustomObject({ ...backups, body });
    await until("the operator has created the Job", async () => !(await isAbsent(batch.readNamespacedJob({ name, namespace }))));
  };
  await create("nightly");
  await until("the Job has finished", async () => (await batch.readNamespacedJobStatus({ name: "nightly", namespace })).status.completionTime);

  // Its time passes: the Job and its pod are collected, the Backup stays.
  await server.advance("2h");
  await server.settle();
  assert.ok(await isAbsent(batch.readNamespacedJob({ name: "nightly", namespace })));
  assert.deepEqual((await core.listNamespacedPod({ namespace })).items, []);
  assert.ok(!(await isAbsent(objects.getNamespacedCustomObject({ ...backups, name: "nightly" }))));

  // The Backup is deleted: the operator releases the bucket, and the Job of another day goes with it.
  await create("weekly");
  await objects.deleteNamespacedCustomObject({ ...backups, name: "weekly" });
  await until("the finalizer is removed", () => isAbsent(objects.getNamespacedCustomObject({ ...backups, name: "weekly" })));
  await server.settle();
  assert.ok(!(await isAbsent(core.readNamespacedConfigMap({ name: "released-weekly", namespace }))));
  assert.ok(await isAbsent(batch.readNamespacedJob({ name: "weekly", namespace })));
  assert.deepEqual((await core.listNamespacedPod({ namespace })).items, []);
  assert.deepEqual(errors.filter((error) => error.code !== 409), []);
});

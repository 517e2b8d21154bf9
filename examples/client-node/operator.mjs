// An operator with the official client: for each Backup a Job, and a bucket that is released when the Backup is deleted.
import {
  BatchV1Api, CoreV1Api, CustomObjectsApi, KubeConfig, PatchStrategy, makeInformer, setHeaderOptions,
} from "@kubernetes/client-node";

const GROUP = "example.com";
const VERSION = "v1";
const PLURAL = "backups";
const FINALIZER = `${GROUP}/bucket`;

/** Runs the operator in one namespace; resolves to a function that stops it. `failed` is called with each error. */
export async function run(kubeconfig, namespace, failed) {
  const config = new KubeConfig();
  config.loadFromFile(kubeconfig);
  const objects = config.makeApiClient(CustomObjectsApi);
  const batch = config.makeApiClient(BatchV1Api);
  const core = config.makeApiClient(CoreV1Api);
  const place = { group: GROUP, version: VERSION, plural: PLURAL, namespace };
  const setFinalizers = ({ metadata }, finalizers) =>
    objects.patchNamespacedCustomObject(
      // The version makes sure that nobody else's change is undone.
      { ...place, name: metadata.name, body: { metadata: { resourceVersion: metadata.resourceVersion, finalizers } } },
      setHeaderOptions("Content-Type", PatchStrategy.MergePatch),
    );

  async function reconcile(backup) {
    const { name, uid, finalizers = [], deletionTimestamp } = backup.metadata;
    if (deletionTimestamp) {
      if (!finalizers.includes(FINALIZER)) return;
      // What is outside of Kubernetes needs a finalizer; here a ConfigMap stands for it.
      const body = { metadata: { name: `released-${backup.spec.bucket}` } };
      await core.createNamespacedConfigMap({ namespace, body }).catch(unlessExists);
      await setFinalizers(backup, finalizers.filter((one) => one !== FINALIZER));
    } else if (!finalizers.includes(FINALIZER)) {
      // The change comes back as an update, which creates the Job.
      await setFinalizers(backup, [...finalizers, FINALIZER]);
    } else {
      const containers = [{ name: "backup", image: "example.com/backup:1" }];
      // The owner reference: garbage collection deletes the Job when the Backup is gone.
      const owner = { apiVersion: backup.apiVersion, kind: backup.kind, name, uid, controller: true, blockOwnerDeletion: true };
      const body = {
        metadata: { name, ownerReferences: [owner] },
        spec: {
          ttlSecondsAfterFinished: backup.spec.keepSeconds,
          template: { spec: { restartPolicy: "Never", containers } },
        },
      };
      await batch.createNamespacedJob({ namespace, body }).catch(unlessExists);
    }
  }

  const path = `/apis/${GROUP}/${VERSION}/namespaces/${namespace}/${PLURAL}`;
  const informer = makeInformer(config, path, () => objects.listNamespacedCustomObject(place));
  const handle = (backup) => reconcile(backup).catch(failed);
  informer.on("add", handle);
  informer.on("update", handle);
  informer.on("error", failed);
  await informer.start();
  return () => informer.stop();
}

function unlessExists(error) {
  if (error.code !== 409) throw error;
}

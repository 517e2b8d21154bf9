// An icon for each kind that people recognize, and one for all others, drawn in a square of 16.

const STROKE = { fill: "none", stroke: "currentColor", "stroke-width": 1.4, "stroke-linejoin": "round", "stroke-linecap": "round" } as const;

const PATHS: Record<string, string> = {
  pod: "M8 1.8 13.5 5v6L8 14.2 2.5 11V5Zm0 6.2 5.5-3M8 8 2.5 5M8 8v6.2",
  deployment: "M13.6 8A5.6 5.6 0 1 1 11 3.3M13.8 1.8v3h-3M8 5.4 10.3 6.7v2.6L8 10.6 5.700 9.300V6.700Z",
  replicas: "M5.500 5.500h8v8h-8ZM3.800 11.500H2.500v-9h9v1.300",
  stateful: "M2.800 4c0-1.200 2.300-2.200 5.200-2.200s5.200 1 5.200 2.200-2.300 2.200-5.200 2.200S2.800 5.200 2.800 4Zm0 0v8c0 1.200 2.300 2.200 5.200 2.200s5.200-1 5.200-2.200V4M2.800 8c0 1.200 2.300 2.200 5.200 2.200s5.200-1 5.200-2.200",
  daemon: "M2 3h4v4H2Zm8 0h4v4h-4ZM2 10h4v4H2Zm8 0h4v4h-4Z",
  job: "M2.500 2.500h11v11h-11ZM5 8.200l2.200 2.200L11.200 6",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm0 2.800V8l2.300 1.600",
  network: "M8 2v4M3.500 10V8h9v2M6 2h4v3H6ZM1.800 10.500h3.500v3.500H1.800Zm8.900 0h3.500v3.500h-3.500Z",
  document: "M4 1.800h5.500L12.500 5v9.200H4ZM9.300 2v3.200h3M6 8h4.500M6 10.800h4.500",
  key: "M10.500 2a3.500 3.500 0 1 0 0 7 3.500 3.500 0 0 0 0-7ZM8 8l-5.500 5.500M4.500 11.500l1.500 1.500M11.300 4.800h.01",
  disk: "M2.500 9.500 4.300 3h7.400l1.800 6.500V13h-11ZM2.500 9.500h11M10.800 11.300h.3",
  namespace: "M2.500 5V2.500H5M8 2.500h.5M11 2.500h2.500V5M13.500 8v.5M13.500 11v2.500H11M8 13.500h.5M5 13.500H2.500V11M2.500 8v.5",
  node: "M2 3h12v7H2ZM5.500 13.500h5M8 10v3.500",
  person: "M8 2.200a2.600 2.600 0 1 0 0 5.200 2.600 2.600 0 0 0 0-5.200ZM3 13.800c0-2.800 2.200-4.400 5-4.400s5 1.600 5 4.400",
  shield: "M8 1.800l5 2v4c0 3.200-2.100 5.400-5 6.400-2.900-1-5-3.200-5-6.400v-4Z",
  definition: "M5.500 2.500c-1.500 0-2 .6-2 2v2c0 .9-.5 1.500-1.500 1.500 1 0 1.500.6 1.500 1.500v2c0 1.400.5 2 2 2M10.500 2.500c1.500 0 2 .6 2 2v2c0 .9.5 1.500 1.500 1.500-1 0-1.500.6-1.500 1.500v2c0 1.400-.5 2-2 2",
  event: "M9 1.800 3.500 9H7.500L6.800 14.200 12.500 7H8.300Z",
  other: "M8 2l5.200 3v6L8 14l-5.200-3V5Z",
};

const KINDS: Record<string, keyof typeof PATHS> = {
  Pod: "pod",
  Deployment: "deployment",
  ReplicaSet: "replicas",
  ReplicationController: "replicas",
  ControllerRevision: "replicas",
  StatefulSet: "stateful",
  DaemonSet: "daemon",
  Job: "job",
  CronJob: "clock",
  Lease: "clock",
  Service: "network",
  Ingress: "network",
  Endpoints: "network",
  EndpointSlice: "network",
  NetworkPolicy: "network",
  ConfigMap: "document",
  Secret: "key",
  PersistentVolumeClaim: "disk",
  PersistentVolume: "disk",
  VolumeAttachment: "disk",
  StorageClass: "disk",
  Namespace: "namespace",
  Node: "node",
  ServiceAccount: "person",
  Role: "shield",
  ClusterRole: "shield",
  RoleBinding: "shield",
  ClusterRoleBinding: "shield",
  PodDisruptionBudget: "shield",
  CustomResourceDefinition: "definition",
  Event: "event",
};

const pathOf = (kind: string): string => PATHS[KINDS[kind] ?? "other"]!;

/** The icon of a kind in a drawing, with its upper left corner at this position. */
export function KindMark({ kind, x, y }: { kind: string; x: number; y: number }) {
  return <path class="kind-icon" d={pathOf(kind)} transform={`translate(${x} ${y})`} {...STROKE} />;
}

/** The icon of a kind in text, with the kind as its label. */
export function KindIcon({ kind }: { kind: string }) {
  return (
    <svg class="kind-icon" width="14" height="14" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={pathOf(kind)} {...STROKE} />
    </svg>
  );
}

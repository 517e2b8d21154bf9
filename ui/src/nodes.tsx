// The fleet of nodes, as the agents of the nodes report it.
import { useEffect, useState } from "preact/hooks";
import { api, type FleetNode, type NodePolicyResult } from "./api";
import { bytes, count, plural, since } from "./format";
import { Card, Command, Empty, Failure, Loading, ObjectLink } from "./parts";
import { useLive } from "./state";

/** Time without typing after which the search is sent, in milliseconds. */
const TYPING = 250;
/** Disk use above which a disk is marked: the kubelet's threshold for images. */
const FULL_PERCENT = 85;

export function NodesView() {
  const [typed, setTyped] = useState("");
  const [text, setText] = useState("");
  useEffect(() => {
    const timer = window.setTimeout(() => setText(typed.trim()), TYPING);
    return () => clearTimeout(timer);
  }, [typed]);
  const { data, error, refresh } = useLive((signal) => api.nodes(text, signal), ["nodes", text]);
  return (
    <Card title="Nodes" id="fleet" class="fleet" aside={data && <span class="quiet">{plural(data.total, "report")}</span>}>
      <div class="feed-filter">
        <input type="search" placeholder="Filter: part of the name of a node" aria-label="Filter the nodes" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
      </div>
      {error && <Failure error={error} retry={refresh} />}
      {!data && !error && <Loading lines={4} />}
      {data && data.items.length > 0 && (
        <table class="fleet-table">
          <thead>
            <tr>
              {["Node", "Disk of images", "Images", "Unexplained", "Last pass", "Freed, last hour", "Reported"].map((name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {data.items.map((node) => (
              <NodeRow key={node.node} node={node} now={data.now} />
            ))}
          </tbody>
        </table>
      )}
      {data && data.total > data.items.length && <p class="fleet-note quiet">and {plural(data.total - data.items.length, "more node")}: filter by name to see them</p>}
      {data && data.items.length === 0 && text && data.unreported.total === 0 && <Empty title="Nothing fits">No node has this text in its name.</Empty>}
      {data && data.items.length === 0 && !text && (
        <div class="empty">
          <p class="empty-title">No node reports</p>
          <p>The agent (kubegc node) on each node writes its report onto a Lease; you see it if you may list the Leases of its namespace.</p>
          <Command text="kubectl apply -f deploy/node/daemonset.yaml" />
        </div>
      )}
      {data && data.unreported.total > 0 && (
        <p class="fleet-note quiet">
          Without a report: {data.unreported.names.join(", ")}
          {data.unreported.total > data.unreported.names.length && ` and ${count(data.unreported.total - data.unreported.names.length)} more`}
        </p>
      )}
    </Card>
  );
}

/** Describes the result of a policy for nodes in a few words. */
function policyResult({ policy, state, images, bytes: freed }: NodePolicyResult): string {
  switch (state) {
    case "DryRun":
      return `${policy} would remove ${plural(images, "image")} (${bytes(freed)})`;
    case "Enforced":
      return `${policy} removed ${plural(images, "image")} (${bytes(freed)}) in the last pass`;
    case "Superseded":
      return `${policy} is superseded`;
    default:
      return `${policy} is not in force: see its status`;
  }
}

function NodeRow({ node, now }: { node: FleetNode; now: string }) {
  const failed = node.passes.filter((pass) => pass.failed);
  const last = node.passes.map((pass) => pass.at).sort()[0];
  const place = { apiVersion: "v1", kind: "Node", resource: "nodes", namespace: "", name: node.node, uid: "" };
  return (
    <tr class={node.silent ? "silent" : ""}>
      <th scope="row">
        <ObjectLink place={place} />
      </th>
      <td data-label="Disk of images">
        {node.disks.length === 0 && "not known"}
        {node.disks.map((disk) => (
          <div key={disk.path} class={`disk ${disk.usagePercent >= FULL_PERCENT ? "full" : ""}`} title={disk.path}>
            <meter min={0} max={100} low={FULL_PERCENT - 5} high={FULL_PERCENT} optimum={0} value={Math.min(100, disk.usagePercent)} aria-label={`Use of ${disk.path}`} />
            <span class="figure">{disk.usagePercent} %</span>{" "}
            <span class="quiet">
              {bytes(disk.usedBytes)} of {bytes(disk.capacityBytes)}
            </span>
          </div>
        ))}
      </td>
      <td data-label="Images">
        {node.images === null ? (
          "not known"
        ) : (
          <>
            <span class="figure">{count(node.images)}</span> <span class="quiet">{bytes(node.imageBytes)}</span>
          </>
        )}
      </td>
      <td data-label="Unexplained">{node.unexplainedBytes === null ? <span class="quiet">not known</span> : <span class="figure">{bytes(node.unexplainedBytes)}</span>}</td>
      <td data-label="Last pass">
        {failed.length > 0 ? (
          <span class="badge bad">{failed.map((pass) => pass.collector).join(" and ")} failed</span>
        ) : last ? (
          `${since(last, now)} ago`
        ) : (
          "none yet"
        )}
      </td>
      <td data-label="Freed, last hour">
        {bytes(node.removed.freedBytes)} {node.due > 0 && <span class="quiet">{plural(node.due, "image")} due</span>}
        {node.policies.map((one) => (
          <div key={one.policy} class="quiet" title={[one.message, one.kubelet].filter(Boolean).join("; ")}>
            {policyResult(one)}
          </div>
        ))}
      </td>
      <td data-label="Reported">{node.silent ? <span class="badge bad">silent for {since(node.reported, now)}</span> : `${since(node.reported, now)} ago`}</td>
    </tr>
  );
}

// The ownership map: laid out by dagre, drawn as SVG, moved by pointer, wheel and keys.
import dagre from "@dagrejs/dagre";
import type { TargetedKeyboardEvent, TargetedPointerEvent, TargetedWheelEvent } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, Refused, type Fate, type MapNode, type NodeState, type OwnershipMap, type Overview, type Place } from "./api";
import { count, plural, words } from "./format";
import { Empty, Failure, Loading, ObjectLink } from "./parts";
import { go, useLive, type Route } from "./state";

const NODE = { width: 208, height: 46 };
const GAP = { x: 64, y: 14 };

interface Placed {
  key: string;
  node: MapNode;
  x: number;
  y: number;
}

interface Layout {
  nodes: Placed[];
  edges: { key: string; path: string; blocking: boolean; invalid: boolean; controller: boolean }[];
  width: number;
  height: number;
}

const keyOf = (node: MapNode) => (node.count > 1 ? `${node.object.uid}×` : node.object.uid);

/** Connected objects as layers from owners to dependents; what is connected to nothing in a grid below. */
function layout(map: OwnershipMap): Layout {
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({ rankdir: "LR", nodesep: GAP.y, ranksep: GAP.x, marginx: 24, marginy: 24 });
  graph.setDefaultEdgeLabel(() => ({}));
  const connected = new Set(map.edges.flatMap(({ owner, dependent }) => [owner, dependent]));
  map.nodes.forEach((_, place) => connected.has(place) && graph.setNode(`${place}`, { ...NODE }));
  map.edges.forEach(({ owner, dependent }) => owner !== dependent && graph.setEdge(`${owner}`, `${dependent}`));
  let width = 0;
  let height = 0;
  if (connected.size > 0) {
    dagre.layout(graph);
    const size = graph.graph() as { width?: number; height?: number };
    width = size.width ?? 0;
    height = size.height ?? 0;
  }
  const nodes: Placed[] = [];
  const at = new Map<number, { x: number; y: number }>();
  map.nodes.forEach((node, place) => {
    if (!connected.has(place)) return;
    const { x, y } = graph.node(`${place}`) as { x: number; y: number };
    at.set(place, { x, y });
    nodes.push({ key: keyOf(node), node, x, y });
  });
  const alone = map.nodes.filter((_, place) => !connected.has(place));
  const columns = Math.max(3, Math.min(6, Math.floor(Math.max(width, 960) / (NODE.width + GAP.y))));
  const top = connected.size > 0 ? height + 24 : 24;
  alone.forEach((node, number) => {
    const x = 24 + NODE.width / 2 + (number % columns) * (NODE.width + GAP.y);
    const y = top + NODE.height / 2 + Math.floor(number / columns) * (NODE.height + GAP.y);
    nodes.push({ key: keyOf(node), node, x, y });
    width = Math.max(width, x + NODE.width / 2 + 24);
    height = Math.max(height, y + NODE.height / 2 + 24);
  });
  const edges = map.edges.flatMap((edge) => {
    const [from, to] = [at.get(edge.owner), at.get(edge.dependent)];
    if (!from || !to) return [];
    const [x1, x2] = [from.x + NODE.width / 2, to.x - NODE.width / 2 - 5];
    const bend = Math.max(24, (x2 - x1) / 2);
    return [
      {
        key: `${keyOf(map.nodes[edge.owner]!)}>${keyOf(map.nodes[edge.dependent]!)}`,
        path: `M${x1},${from.y}C${x1 + bend},${from.y} ${x2 - bend},${to.y} ${x2},${to.y}`,
        blocking: edge.blocking,
        invalid: edge.invalid,
        controller: edge.controller,
      },
    ];
  });
  return { nodes, edges, width, height };
}

const STATES: [NodeState, string][] = [
  ["Living", "living"],
  ["Terminating", "terminating"],
  ["Orphan", "orphan: all owners absent"],
  ["InvalidReference", "invalid reference"],
  ["Absent", "absent owner"],
];

export function MapView({ route, overview, plan }: { route: Route; overview: Overview | null; plan: string | null }) {
  const namespaces = overview?.namespaces ?? [];
  // Without a namespace, the one with the most objects is shown.
  const largest = namespaces.reduce((most, one) => (one.objects > (most?.objects ?? 0) ? one : most), namespaces[0]);
  const namespace = route.namespace || largest?.name || "";
  const selected = route.object ? `${route.object.resource}/${route.object.namespace}/${route.object.name}` : "";
  const wanted = { ...(route.uid ? { uid: route.uid } : { namespace }), plan: plan ?? "", selected };
  const ready = !!route.uid || !!namespace;
  const { data: answer, error, refresh } = useLive(
    (signal) => (ready ? api.map(wanted, signal) : Promise.resolve(null)),
    ["map", route.uid, namespace, plan, selected],
  );
  // The picture stays until the one with the plan or the selection has come.
  const extent = `${route.uid} ${namespace}`;
  const last = useRef<{ extent: string; data: OwnershipMap } | null>(null);
  if (answer) last.current = { extent, data: answer };
  const data = answer ?? (last.current?.extent === extent ? last.current.data : null);
  const absent = !route.uid && error instanceof Refused && error.reason === "NotFound";
  const drawn = useMemo(() => (data ? layout(data) : null), [data]);
  const [group, setGroup] = useState<MapNode | null>(null);
  useEffect(() => setGroup(null), [route.uid, namespace]);
  return (
    <section class="card map-card" aria-labelledby="map-title">
      <header class="card-head">
        <h2 id="map-title">{route.uid ? "Around one object" : namespace ? `Ownership in ${namespace}` : "Ownership"}</h2>
        {route.uid && (
          <button type="button" class="button small" onClick={() => go({ uid: "" })}>
            Whole namespace
          </button>
        )}
        {data && (
          <span class="quiet">
            {plural(data.objects, "object")} in {plural(data.nodes.length, "node")}
            {data.omitted > 0 && `, ${count(data.omitted)} not drawn`}
          </span>
        )}
      </header>
      {absent && <Empty title="There is no such namespace">It was deleted, or never was. The others are in the list above.</Empty>}
      {error && !absent && <Failure error={error} retry={refresh} />}
      {!drawn && !error && (overview && !ready ? <Empty title="There is nothing to draw">No objects in a namespace can be seen.</Empty> : <Loading lines={8} />)}
      {drawn && drawn.nodes.length === 0 && <Empty title="The namespace is empty" />}
      {drawn && drawn.nodes.length > 0 && <Canvas drawn={drawn} label={namespace || route.uid} planned={plan !== null && answer !== null} onGroup={setGroup} selected={route.object} />}
      <Legend planned={plan !== null} />
      {group && <Members node={group} onClose={() => setGroup(null)} />}
    </section>
  );
}

function Legend({ planned }: { planned: boolean }) {
  return (
    <ul class="legend" aria-label="Legend">
      {STATES.map(([state, text]) => (
        <li key={state}>
          <span class={`swatch state-${state}`} /> {text}
        </li>
      ))}
      <li>
        <svg width="22" height="8" aria-hidden="true">
          <line x1="0" y1="4" x2="22" y2="4" class="edge blocking" />
        </svg>{" "}
        blocks its owner's deletion
      </li>
      {planned &&
        (["Deleted", "DeletedLater", "Hangs", "Released"] as Fate[]).map((fate) => (
          <li key={fate}>
            <span class={`swatch fate-${fate}`} /> plan: {words(fate).toLowerCase()}
          </li>
        ))}
    </ul>
  );
}

function Members({ node, onClose }: { node: MapNode; onClose: () => void }) {
  return (
    <div class="members" role="region" aria-label={`${node.object.kind}, ${count(node.count)} objects`}>
      <header class="card-head">
        <h3>
          {plural(node.count, node.object.kind)}, {words(node.state).toLowerCase()}
        </h3>
        <button type="button" class="button small" onClick={onClose}>
          Close
        </button>
      </header>
      <div class="objects">
        {node.members.map((place) => (
          <ObjectLink key={place.uid} place={place} showNamespace={false} />
        ))}
        {node.count > node.members.length && <span class="quiet">and {count(node.count - node.members.length)} more; search finds them</span>}
      </div>
    </div>
  );
}

interface Window {
  x: number;
  y: number;
  scale: number;
}

const SCALES: [number, number] = [0.15, 2];
/** On a screen narrower than this, a map begins at a scale at which it can be read, with what is selected in the middle. */
const NARROW_PIXELS = 600;
const READABLE_SCALE = 0.7;

type Point = { x: number; y: number };

function Canvas(props: {
  drawn: Layout;
  label: string;
  planned: boolean;
  selected: { resource: string; namespace: string; name: string } | null;
  onGroup: (node: MapNode) => void;
}) {
  const { drawn, planned } = props;
  const frame = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 800, height: 480 });
  const [view, setView] = useState<Window | null>(null);
  const drag = useRef<{ x: number; y: number; view: Window; moved: boolean } | null>(null);
  const fingers = useRef(new Map<number, Point>());
  useEffect(() => {
    const element = frame.current!;
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  // Another map is shown whole; the same one stays where it was moved to.
  useEffect(() => setView(null), [props.label]);
  const fit = (): Window => {
    const scale = Math.min(1, Math.max(SCALES[0], Math.min(size.width / drawn.width, size.height / drawn.height)));
    return { x: Math.max(0, (size.width - drawn.width * scale) / 2), y: Math.max(0, (size.height - drawn.height * scale) / 2), scale };
  };
  const begin = (): Window => {
    const whole = fit();
    if (size.width >= NARROW_PIXELS || whole.scale >= READABLE_SCALE) return whole;
    const first = drawn.nodes.find(({ node }) => isSelected(node.object, props.selected)) ?? drawn.nodes[0];
    if (!first) return whole;
    const scale = READABLE_SCALE;
    return { x: Math.min(0, size.width / 2 - first.x * scale), y: Math.min(0, size.height / 2 - first.y * scale), scale };
  };
  const now = view ?? begin();
  const zoom = (by: number, at = { x: size.width / 2, y: size.height / 2 }) => {
    const scale = Math.min(SCALES[1], Math.max(SCALES[0], now.scale * by));
    const ratio = scale / now.scale;
    setView({ x: at.x - (at.x - now.x) * ratio, y: at.y - (at.y - now.y) * ratio, scale });
  };
  const wheel = (event: TargetedWheelEvent<HTMLDivElement>) => {
    event.preventDefault();
    const box = frame.current!.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey || Math.abs(event.deltaY) > Math.abs(event.deltaX) * 2) {
      zoom(Math.exp(-event.deltaY / 400), { x: event.clientX - box.left, y: event.clientY - box.top });
    } else {
      setView({ ...now, x: now.x - event.deltaX, y: now.y - event.deltaY });
    }
  };
  const down = (event: TargetedPointerEvent<HTMLDivElement>) => {
    if (event.button !== 0) return;
    fingers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    drag.current = { x: event.clientX, y: event.clientY, view: now, moved: fingers.current.size > 1 };
  };
  /** Two fingers zoom by how their distance changes, around the middle between them. */
  const pinch = (event: TargetedPointerEvent<HTMLDivElement>) => {
    const box = frame.current!.getBoundingClientRect();
    const distance = () => {
      const [one, other] = [...fingers.current.values()] as [Point, Point];
      return { apart: Math.hypot(one.x - other.x, one.y - other.y), x: (one.x + other.x) / 2 - box.left, y: (one.y + other.y) / 2 - box.top };
    };
    const before = distance();
    fingers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    const after = distance();
    zoom(after.apart / Math.max(1, before.apart), after);
  };
  const move = (event: TargetedPointerEvent<HTMLDivElement>) => {
    const start = drag.current;
    if (!start) return;
    if (fingers.current.size === 2 && fingers.current.has(event.pointerId)) return pinch(event);
    const [x, y] = [event.clientX - start.x, event.clientY - start.y];
    if (!start.moved && Math.abs(x) + Math.abs(y) > 4) {
      start.moved = true;
      event.currentTarget.setPointerCapture(event.pointerId);
    }
    if (start.moved) setView({ ...start.view, x: start.view.x + x, y: start.view.y + y });
  };
  const up = (event: TargetedPointerEvent<HTMLDivElement>) => {
    fingers.current.delete(event.pointerId);
    drag.current = null;
  };
  const open = (node: MapNode) => {
    if (node.count > 1) props.onGroup(node);
    else if (node.object.resource) go({ object: { resource: node.object.resource, namespace: node.object.namespace, name: node.object.name } });
  };
  // Arrow keys lead to the nearest node in their direction.
  const keys = (event: TargetedKeyboardEvent<SVGGElement>, from: Placed) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(from.node);
      return;
    }
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!direction) return;
    event.preventDefault();
    const [dx, dy] = direction as [number, number];
    let nearest: Placed | null = null;
    let least = Infinity;
    for (const other of drawn.nodes) {
      const [x, y] = [other.x - from.x, other.y - from.y];
      const along = x * dx + y * dy;
      if (other === from || along <= 4) continue;
      const cost = along + 3 * Math.abs(x * dy - y * dx);
      if (cost < least) [nearest, least] = [other, cost];
    }
    if (!nearest) return;
    const x = size.width / 2 - nearest.x * now.scale;
    const y = size.height / 2 - nearest.y * now.scale;
    const [left, top] = [nearest.x * now.scale + now.x, nearest.y * now.scale + now.y];
    if (left < 100 || top < 40 || left > size.width - 100 || top > size.height - 40) setView({ x, y, scale: now.scale });
    frame.current?.querySelector<SVGGElement>(`[data-key="${CSS.escape(nearest.key)}"]`)?.focus();
  };
  return (
    <div class="canvas" ref={frame} onWheel={wheel} onPointerDown={down} onPointerMove={move} onPointerUp={up} onPointerCancel={up}>
      <svg width={size.width} height={size.height} role="group" aria-label="Map of owners and dependents; arrow keys move between objects">
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="6" markerHeight="6" orient="auto">
            <path d="M0,1 L6,4 L0,7" class="arrow" />
          </marker>
        </defs>
        <g transform={`translate(${now.x} ${now.y}) scale(${now.scale})`}>
          {drawn.edges.map((edge) => (
            <path key={edge.key} d={edge.path} class={`edge ${edge.blocking ? "blocking" : ""} ${edge.invalid ? "invalid" : ""}`} marker-end="url(#arrow)" />
          ))}
          {drawn.nodes.map((placed, place) => (
            <NodeBox
              key={placed.key}
              placed={placed}
              first={place === 0}
              fate={planned ? placed.node.fate : null}
              dimmed={planned && !placed.node.fate}
              selected={isSelected(placed.node.object, props.selected)}
              onOpen={() => open(placed.node)}
              onKey={(event) => keys(event, placed)}
            />
          ))}
        </g>
      </svg>
      <div class="zoom" role="group" aria-label="Zoom">
        <button type="button" class="icon-button" aria-label="Zoom in" onClick={() => zoom(1.3)}>
          +
        </button>
        <button type="button" class="icon-button" aria-label="Zoom out" onClick={() => zoom(1 / 1.3)}>
          −
        </button>
        <button type="button" class="icon-button wide" aria-label="Fit the map into the view" onClick={() => setView(fit())}>
          Fit
        </button>
      </div>
    </div>
  );
}

const isSelected = (place: Place, subject: { resource: string; namespace: string; name: string } | null) =>
  subject !== null && subject.resource === place.resource && subject.namespace === place.namespace && subject.name === place.name;

const cut = (text: string, length: number) => (text.length > length ? `${text.slice(0, length - 11)}…${text.slice(-10)}` : text);

function NodeBox(props: {
  placed: Placed;
  first: boolean;
  fate: Fate | null;
  dimmed: boolean;
  selected: boolean;
  onOpen: () => void;
  onKey: (event: TargetedKeyboardEvent<SVGGElement>) => void;
}) {
  const { node, x, y, key } = props.placed;
  const many = node.count > 1;
  const { width, height } = NODE;
  const name = many ? plural(node.count, "object") : cut(node.object.name, 27);
  const finalizers = node.finalizers.length > 0 ? plural(node.finalizers.length, "finalizer") : "";
  const planned = props.fate && `plan: ${words(props.fate).toLowerCase()}`;
  const label = [`${node.object.kind} ${name}`, finalizers, words(node.state).toLowerCase(), planned].filter(Boolean).join(", ");
  const classes = ["node", `state-${node.state}`, props.fate ? `fate-${props.fate}` : "", props.dimmed ? "dimmed" : "", props.selected ? "selected" : ""];
  return (
    <g class={classes.join(" ")} style={{ transform: `translate(${x - width / 2}px, ${y - height / 2}px)` }} data-key={key} role="button" tabindex={props.first ? 0 : -1} aria-label={label} onClick={props.onOpen} onKeyDown={props.onKey}>
      {many && <rect class="box behind" x="5" y="-5" width={width} height={height} rx="8" />}
      <rect class="box" width={width} height={height} rx="8" />
      <rect class="stripe" x="0" y="0" width="4" height={height} rx="2" />
      <text class="node-kind" x="14" y="18">
        {node.object.kind}
      </text>{" "}
      <text class="node-name" x="14" y="35">
        {name}
      </text>{" "}
      {finalizers && (
        <text class="node-mark" x={width - 10} y="18" text-anchor="end">
          {finalizers}
        </text>
      )}
    </g>
  );
}

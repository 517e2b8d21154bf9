// Draws the ownership map as SVG that pointer, wheel and keys move.
import type { TargetedKeyboardEvent, TargetedPointerEvent, TargetedWheelEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Fate, MapNode, Place, Subject } from "./api";
import { plural, words } from "./format";
import { KindMark } from "./icons";
import { healthOf, LARGEST_FIT, type Frame, type Layout, type Placed } from "./layout";
import { go } from "./state";

interface Window {
  x: number;
  y: number;
  scale: number;
}

const SCALES: [number, number] = [0.15, 2];
type Point = { x: number; y: number };

export function Canvas(props: {
  drawn: Layout;
  /** Space for the drawing. */
  frame: Frame;
  /** Identifies the map that is drawn; a different map is first shown as a whole. */
  label: string;
  planned: boolean;
  selected: Subject | null;
  /** Expands the group of this object. */
  onGroup: (uid: string) => void;
}) {
  const { drawn, frame: size, planned } = props;
  const frame = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<Window | null>(null);
  const drag = useRef<{ x: number; y: number; view: Window; moved: boolean } | null>(null);
  const fingers = useRef(new Map<number, Point>());
  // Show a different map as a whole; keep the same one where the user moved it.
  useEffect(() => setView(null), [props.label]);
  const fit = (): Window => {
    if (drawn.isOutline) return { x: 0, y: 0, scale: 1 };
    const scale = Math.min(LARGEST_FIT, Math.max(SCALES[0], Math.min(size.width / drawn.width, size.height / drawn.height)));
    return { x: Math.max(0, (size.width - drawn.width * scale) / 2), y: Math.max(0, (size.height - drawn.height * scale) / 2), scale };
  };
  const now = drawn.isOutline ? fit() : (view ?? fit());
  // An outline scrolls with the page; scroll to the selection.
  useEffect(() => {
    if (drawn.isOutline) frame.current?.querySelector(".node.selected")?.scrollIntoView({ block: "center" });
  }, [drawn.isOutline, props.selected?.name, props.label]);
  const zoom = (by: number, at = { x: size.width / 2, y: size.height / 2 }) => {
    const scale = Math.min(SCALES[1], Math.max(SCALES[0], now.scale * by));
    const ratio = scale / now.scale;
    setView({ x: at.x - (at.x - now.x) * ratio, y: at.y - (at.y - now.y) * ratio, scale });
  };
  const wheel = (event: TargetedWheelEvent<HTMLDivElement>) => {
    if (drawn.isOutline) return;
    event.preventDefault();
    const box = frame.current!.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey || Math.abs(event.deltaY) > Math.abs(event.deltaX) * 2) {
      zoom(Math.exp(-event.deltaY / 400), { x: event.clientX - box.left, y: event.clientY - box.top });
    } else {
      setView({ ...now, x: now.x - event.deltaX, y: now.y - event.deltaY });
    }
  };
  const down = (event: TargetedPointerEvent<HTMLDivElement>) => {
    if (event.button !== 0 || drawn.isOutline) return;
    fingers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    drag.current = { x: event.clientX, y: event.clientY, view: now, moved: fingers.current.size > 1 };
  };
  /** Zooms with two fingers by the change of their distance, around the point between them. */
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
    if (node.count > 1) props.onGroup(node.object.uid);
    else if (node.object.resource) go({ object: { resource: node.object.resource, namespace: node.object.namespace, name: node.object.name } });
  };
  // Arrow keys move the focus to the nearest node in their direction.
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
      const [x, y] = [other.x + other.width / 2 - from.x - from.width / 2, other.y - from.y];
      const along = x * dx + y * dy;
      if (other === from || along <= 4) continue;
      const cost = along + 3 * Math.abs(x * dy - y * dx);
      if (cost < least) [nearest, least] = [other, cost];
    }
    if (!nearest) return;
    if (!drawn.isOutline) {
      const [middle, height] = [nearest.x + nearest.width / 2, nearest.y + nearest.height / 2];
      const [left, top] = [middle * now.scale + now.x, height * now.scale + now.y];
      const isOutside = left < 100 || top < 40 || left > size.width - 100 || top > size.height - 40;
      if (isOutside) setView({ x: size.width / 2 - middle * now.scale, y: size.height / 2 - height * now.scale, scale: now.scale });
    }
    frame.current?.querySelector<SVGGElement>(`[data-key="${CSS.escape(nearest.key)}"]`)?.focus();
  };
  return (
    <div class={`canvas ${drawn.isOutline ? "outline" : ""}`} ref={frame} onWheel={wheel} onPointerDown={down} onPointerMove={move} onPointerUp={up} onPointerCancel={up}>
      <svg width={size.width} height={drawn.isOutline ? drawn.height : size.height} role="group" aria-label="Map of owners and dependents; arrow keys move between objects">
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
      {!drawn.isOutline && (
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
      )}
    </div>
  );
}

const isSelected = (place: Place, subject: Subject | null) =>
  subject !== null && subject.resource === place.resource && subject.namespace === place.namespace && subject.name === place.name;

/** The radius of the mark of readiness. */
const DOT = 3.5;

function NodeBox(props: {
  placed: Placed;
  first: boolean;
  fate: Fate | null;
  dimmed: boolean;
  selected: boolean;
  onOpen: () => void;
  onKey: (event: TargetedKeyboardEvent<SVGGElement>) => void;
}) {
  const { node, x, y, key, width, height, kind, name, mark } = props.placed;
  const many = node.count > 1;
  const { health } = node;
  const finalizers = node.finalizers.length > 0 ? plural(node.finalizers.length, "finalizer") : "";
  const isCut = !many && name !== node.object.name;
  const planned = props.fate && `plan: ${words(props.fate).toLowerCase()}`;
  // The label begins with the visible text, in its order, for users of speech input.
  const label = [`${kind} ${name}`, mark, isCut ? node.object.name : "", words(node.state).toLowerCase(), finalizers ? healthOf(node) : "", planned].filter(Boolean).join(", ");
  const is = !health ? "" : health.failed > 0 ? "failed" : health.ready === health.known ? "ready" : "waiting";
  const classes = ["node", `state-${node.state}`, props.fate ? `fate-${props.fate}` : "", props.dimmed ? "dimmed" : "", props.selected ? "selected" : ""];
  return (
    <g class={classes.join(" ")} style={{ transform: `translate(${x}px, ${y}px)` }} data-key={key} role="button" aria-expanded={many ? false : undefined} tabindex={props.first ? 0 : -1} aria-label={label} onClick={props.onOpen} onKeyDown={props.onKey}>
      {isCut && <title>{node.object.name}</title>}
      {many && <rect class="box behind" x="5" y="-5" width={width} height={height} rx="8" />}
      <rect class="box" width={width} height={height} rx="8" />
      <rect class="stripe" x="0" y="0" width="4" height={height} rx="2" />
      <KindMark kind={node.object.kind} x={12} y={6} />
      <text class="node-kind" x="34" y="18">
        {kind}
      </text>{" "}
      <text class="node-name" x="34" y="35">
        {name}
      </text>{" "}
      {mark && (
        <text class={`node-mark ${finalizers ? "" : is}`} x={width - 10} y="18" text-anchor="end">
          {mark}
        </text>
      )}
      {is && <circle class={`health ${is}`} cx="20" cy="33" r={DOT} />}
      {many && <path class="expand" d={`M${width - 20},${height - 14}h8m-4,-4v8`} />}
    </g>
  );
}

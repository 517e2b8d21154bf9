// Places the nodes of the ownership map: dagre lays out the families, which are then packed into the shape of the frame. On a narrow
// screen, the map is an outline.
import dagre from "@dagrejs/dagre";
import type { MapEdge, MapNode, OwnershipMap } from "./api";
import { count, plural } from "./format";

export interface Placed {
  key: string;
  node: MapNode;
  /** The upper left corner. */
  x: number;
  y: number;
  width: number;
  height: number;
  /** The texts, shortened to the width. */
  kind: string;
  name: string;
  mark: string;
}

export interface DrawnEdge {
  key: string;
  path: string;
  blocking: boolean;
  invalid: boolean;
}

export interface Layout {
  nodes: Placed[];
  edges: DrawnEdge[];
  width: number;
  height: number;
  /** True if the map is as wide as the frame, and scrolls with the page. */
  isOutline: boolean;
}

/** The space for a map, in pixels. */
export interface Frame {
  width: number;
  height: number;
}

/** Frames narrower than this get an outline. */
export const NARROW_PIXELS = 600;
const HEIGHT = 46;
const GAP = { x: 56, y: 12 };
const MARGIN = 20;
const WIDTH: [number, number] = [128, 264];
/** Width of the stripe and the icon, left of the texts. */
const INDENT = 34;
const PADDING = 12;
/** Width of the mark on a group that can be expanded. */
const GROUP_MARK = 20;
/** Number of leaves of one owner above which they are set in columns. */
const COLUMN = 6;
/** The ratio of width to height of such a block. */
const BLOCK_RATIO = 1.5;
/** Maximum scale to which small maps are enlarged. */
export const LARGEST_FIT = 1.2;
/** Indentation of a level of the outline, and the deepest one that is still indented. */
const LEVEL = 16;
const DEEPEST = 7;
const OUTLINE_MARGIN = 12;

export const keyOf = (node: MapNode): string => (node.count > 1 ? `${node.object.uid}×` : node.object.uid);

const context = document.createElement("canvas").getContext("2d");
const widths = new Map<string, number>();
/** Maximum number of texts whose width is cached. */
const REMEMBERED = 20_000;

/** Returns the width of a text in the page's font. */
function measured(text: string, font: string): number {
  const key = `${font} ${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size >= REMEMBERED) widths.clear();
    if (context) context.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
    width = context?.measureText(text).width ?? text.length * 7;
    widths.set(key, width);
  }
  return width;
}

const NAME_FONT = "600 12.5px";
const SMALL_FONT = "500 11px";
/** Length of the end of a name that is kept, because it tells objects of one owner apart. */
const KEPT_END = 11;

/** Cuts the middle out of a text until it fits. */
function fitted(text: string, font: string, width: number): string {
  if (measured(text, font) <= width) return text;
  const end = text.slice(-Math.min(KEPT_END, text.length >> 1));
  let [fits, tooLong] = [0, text.length - end.length];
  while (fits + 1 < tooLong) {
    const middle = (fits + tooLong) >> 1;
    if (measured(`${text.slice(0, middle)}…${end}`, font) <= width) fits = middle;
    else tooLong = middle;
  }
  return `${text.slice(0, fits)}…${end}`;
}

/** Returns the text of a node about the readiness of its objects. */
export function healthOf({ count: all, health }: MapNode): string {
  if (!health) return "";
  if (all === 1) return health.text;
  if (health.failed > 0) return `${count(health.failed)} failed`;
  return `${count(health.ready)}/${count(health.known)} ready`;
}

function texts(node: MapNode, showsNamespace: boolean): { kind: string; name: string; mark: string } {
  const namespace = showsNamespace && node.object.namespace ? ` · ${node.object.namespace}` : "";
  const name = node.count > 1 ? plural(node.count, "object") : node.object.name;
  const finalizers = node.finalizers.length > 0 ? plural(node.finalizers.length, "finalizer") : "";
  return { kind: node.object.kind + namespace, name, mark: finalizers || healthOf(node) };
}

const room = (node: MapNode): number => INDENT + PADDING + (node.count > 1 ? GROUP_MARK : 0);

/** Returns the width that a node needs for its texts. */
function widthOf(node: MapNode, showsNamespace: boolean): number {
  const { kind, name, mark } = texts(node, showsNamespace);
  const first = measured(kind, SMALL_FONT) + (mark ? measured(mark, SMALL_FONT) + 12 : 0);
  const needed = Math.max(first, measured(name, NAME_FONT)) + room(node);
  return Math.ceil(Math.min(WIDTH[1], Math.max(WIDTH[0], needed)));
}

function placed(node: MapNode, x: number, y: number, width: number, showsNamespace: boolean): Placed {
  const { kind, name, mark } = texts(node, showsNamespace);
  const inner = width - room(node);
  const markWidth = mark ? measured(mark, SMALL_FONT) + 12 : 0;
  return {
    key: keyOf(node),
    node,
    x,
    y,
    width,
    height: HEIGHT,
    kind: fitted(kind, SMALL_FONT, inner - markWidth),
    name: fitted(name, NAME_FONT, inner),
    mark,
  };
}

interface Box {
  width: number;
  height: number;
}

/** Places boxes in a strip of this width, each as high up as it fits. */
function pack(boxes: Box[], width: number): { at: { x: number; y: number }[]; size: Box } {
  // The lower contour of the placed boxes: ends of steps and their heights.
  let steps: { x: number; width: number; y: number }[] = [{ x: 0, width, y: 0 }];
  const size = { width: 0, height: 0 };
  const at = boxes.map((box) => {
    let best = { x: 0, y: Infinity };
    for (const { x } of steps) {
      if (x > 0 && x + box.width > width) continue;
      const covered = steps.filter((step) => step.x < x + box.width && step.x + step.width > x);
      const y = Math.max(...covered.map((step) => step.y));
      if (y < best.y) best = { x, y };
    }
    const [from, to] = [best.x, best.x + box.width];
    const rest = steps.flatMap((step) => {
      const end = step.x + step.width;
      return [
        ...(step.x < from ? [{ ...step, width: Math.min(end, from) - step.x }] : []),
        ...(end > to ? [{ ...step, x: Math.max(step.x, to), width: end - Math.max(step.x, to) }] : []),
      ];
    });
    steps = [...rest, { x: from, width: box.width, y: best.y + box.height }].sort((left, right) => left.x - right.x);
    size.width = Math.max(size.width, to);
    size.height = Math.max(size.height, best.y + box.height);
    return best;
  });
  return { at, size };
}

/** Packs boxes so that they fill the frame at the largest scale. */
function packed(boxes: Box[], frame: Frame): { at: { x: number; y: number }[]; size: Box } {
  const widest = Math.max(...boxes.map((box) => box.width));
  const area = boxes.reduce((sum, box) => sum + box.width * box.height, 0);
  const ideal = Math.sqrt((area * frame.width) / frame.height);
  let best = pack(boxes, Math.max(widest, ideal));
  const scale = ({ width, height }: Box) => Math.min(LARGEST_FIT, frame.width / (width + 2 * MARGIN), frame.height / (height + 2 * MARGIN));
  for (const factor of [0.7, 0.85, 1.15, 1.3, 1.5, 1.8, 2.2]) {
    const tried = pack(boxes, Math.max(widest, ideal * factor));
    if (scale(tried.size) > scale(best.size) * 1.001) best = tried;
  }
  return best;
}

/** Returns the sets of nodes that edges connect, by index. */
function families(map: OwnershipMap): number[][] {
  const parent = map.nodes.map((_, place) => place);
  const root = (place: number): number => {
    while (parent[place] !== place) place = parent[place] = parent[parent[place]!]!;
    return place;
  };
  for (const { owner, dependent } of map.edges) parent[root(owner)] = root(dependent);
  const sets = new Map<number, number[]>();
  map.nodes.forEach((_, place) => {
    const key = root(place);
    sets.set(key, [...(sets.get(key) ?? []), place]);
  });
  return [...sets.values()];
}

interface Family extends Box {
  nodes: { place: number; x: number; y: number }[];
}

/** Places owners to the left of their dependents, and many leaves of one owner in columns. */
function family(places: number[], edges: MapEdge[], width: (place: number) => number): Family {
  if (places.length === 1) return { width: width(places[0]!), height: HEIGHT, nodes: [{ place: places[0]!, x: 0, y: 0 }] };
  const owners = new Map<number, number[]>();
  const isOwner = new Set<number>();
  for (const { owner, dependent } of edges) {
    owners.set(dependent, [...(owners.get(dependent) ?? []), owner]);
    isOwner.add(owner);
  }
  const leaves = new Map<number, number[]>();
  for (const place of places) {
    const own = owners.get(place) ?? [];
    if (own.length === 1 && !isOwner.has(place)) leaves.set(own[0]!, [...(leaves.get(own[0]!) ?? []), place]);
  }
  const blocks = new Map<number, { columns: number; cell: number; leaves: number[] }>();
  const isInBlock = new Set<number>();
  for (const [owner, all] of leaves) {
    if (all.length <= COLUMN) continue;
    const cell = Math.max(...all.map(width)) + GAP.y;
    const columns = Math.ceil(Math.sqrt((all.length * (HEIGHT + GAP.y) * BLOCK_RATIO) / cell));
    blocks.set(owner, { columns, cell, leaves: all });
    all.forEach((place) => isInBlock.add(place));
  }
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({ rankdir: "LR", nodesep: GAP.y, ranksep: GAP.x });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const place of places) if (!isInBlock.has(place)) graph.setNode(`${place}`, { width: width(place), height: HEIGHT });
  for (const [owner, { columns, cell, leaves: all }] of blocks) {
    const rows = Math.ceil(all.length / columns);
    graph.setNode(`${owner}+`, { width: columns * cell - GAP.y, height: rows * (HEIGHT + GAP.y) - GAP.y });
    graph.setEdge(`${owner}`, `${owner}+`);
  }
  for (const { owner, dependent } of edges) if (owner !== dependent && !isInBlock.has(dependent)) graph.setEdge(`${owner}`, `${dependent}`);
  dagre.layout(graph);
  const corner = (name: string) => {
    const { x, y, width: wide, height } = graph.node(name) as { x: number; y: number; width: number; height: number };
    return { x: x - wide / 2, y: y - height / 2 };
  };
  const nodes = places.filter((place) => !isInBlock.has(place)).map((place) => ({ place, ...corner(`${place}`) }));
  for (const [owner, { columns, cell, leaves: all }] of blocks) {
    const { x, y } = corner(`${owner}+`);
    all.forEach((place, number) => nodes.push({ place, x: x + (number % columns) * cell, y: y + Math.floor(number / columns) * (HEIGHT + GAP.y) }));
  }
  const size = graph.graph() as { width?: number; height?: number };
  return { width: size.width ?? 0, height: size.height ?? 0, nodes };
}

function curve(from: Placed, to: Placed): string {
  const [x1, y1] = [from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = [to.x - 5, to.y + to.height / 2];
  const bend = Math.max(20, (x2 - x1) / 2);
  return `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
}

const elbow = (from: Placed, to: Placed): string => {
  const [x1, y1, x2, y2] = [from.x + LEVEL / 2, from.y + (to.y < from.y ? 0 : from.height), to.x - 4, to.y + to.height / 2];
  return `M${x1},${y1}V${y2}H${x2}`;
};

function edges(map: OwnershipMap, at: Placed[], path: (from: Placed, to: Placed) => string): DrawnEdge[] {
  return map.edges.flatMap(({ owner, dependent, blocking, invalid }) => {
    const [from, to] = [at[owner], at[dependent]];
    return from && to ? [{ key: `${from.key}>${to.key}`, path: path(from, to), blocking, invalid }] : [];
  });
}

/** Places dependents below their first owner, indented. */
function outline(map: OwnershipMap, frame: Frame, showsNamespace: boolean): Layout {
  const dependents = new Map<number, number[]>();
  const owned = new Set<number>();
  for (const { owner, dependent } of map.edges) {
    if (owner === dependent) continue;
    dependents.set(owner, [...(dependents.get(owner) ?? []), dependent]);
    owned.add(dependent);
  }
  const at: Placed[] = [];
  let y = OUTLINE_MARGIN;
  const open = map.nodes.map((_, place) => ({ place, depth: 0 }));
  // Families first, and rings, which have no first owner, last.
  const rank = ({ place }: { place: number }) => (owned.has(place) ? 2 : dependents.has(place) ? 0 : 1);
  const stack = open.sort((left, right) => rank(right) - rank(left) || right.place - left.place);
  for (let next = stack.pop(); next; next = stack.pop()) {
    if (at[next.place]) continue;
    const x = OUTLINE_MARGIN + Math.min(next.depth, DEEPEST) * LEVEL;
    at[next.place] = placed(map.nodes[next.place]!, x, y, frame.width - x - OUTLINE_MARGIN, showsNamespace);
    y += HEIGHT + 8;
    const below = dependents.get(next.place) ?? [];
    for (const place of below.toReversed()) stack.push({ place, depth: next.depth + 1 });
  }
  const nodes = map.nodes.map((_, place) => at[place]!);
  return { nodes: nodes.toSorted((left, right) => left.y - right.y), edges: edges(map, at, elbow), width: frame.width, height: y - 8 + OUTLINE_MARGIN, isOutline: true };
}

export function layout(map: OwnershipMap, frame: Frame, showsNamespace: boolean): Layout {
  if (frame.width < NARROW_PIXELS) return outline(map, frame, showsNamespace);
  const sets = families(map);
  const ownEdges = new Map<number, MapEdge[]>();
  const setOf = new Map(sets.flatMap((places, number) => places.map((place) => [place, number] as const)));
  for (const edge of map.edges) {
    const number = setOf.get(edge.owner)!;
    ownEdges.set(number, [...(ownEdges.get(number) ?? []), edge]);
  }
  const needed = map.nodes.map((node) => widthOf(node, showsNamespace));
  // Objects without connections form columns of one width.
  const single = Math.max(0, ...sets.filter((places) => places.length === 1).map(([place]) => needed[place!]!));
  const isAlone = new Set(sets.filter((places) => places.length === 1).map(([place]) => place!));
  const width = (place: number) => (isAlone.has(place) ? single : needed[place]!);
  const drawn = sets.map((places, number) => family(places, ownEdges.get(number) ?? [], width));
  drawn.sort((left, right) => Number(right.nodes.length > 1) - Number(left.nodes.length > 1) || right.height - left.height);
  const gaps = drawn.map((one) => ({ width: one.width + (one.nodes.length > 1 ? 2 * GAP.y : GAP.y), height: one.height + (one.nodes.length > 1 ? 2 * GAP.y : GAP.y) }));
  const { at: corners, size } = packed(gaps, frame);
  const at: Placed[] = [];
  drawn.forEach((one, number) => {
    for (const { place, x, y } of one.nodes) {
      const corner = corners[number]!;
      at[place] = placed(map.nodes[place]!, MARGIN + corner.x + x, MARGIN + corner.y + y, width(place), showsNamespace);
    }
  });
  return { nodes: map.nodes.map((_, place) => at[place]!), edges: edges(map, at, curve), width: size.width + 2 * MARGIN, height: size.height + 2 * MARGIN, isOutline: false };
}

// The ownership map: selects the objects, and frames the drawing.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, Refused, type Fate, type NodeState, type OwnershipMap, type Overview } from "./api";
import { Canvas } from "./canvas";
import { count, plural, words } from "./format";
import { KindIcon } from "./icons";
import { layout, NARROW_PIXELS, type Frame } from "./layout";
import { Empty, Failure, Loading } from "./parts";
import { go, useLive, type Route } from "./state";

const STATES: [NodeState, string][] = [
  ["Living", "living"],
  ["Terminating", "terminating"],
  ["Orphan", "orphan: all owners absent"],
  ["InvalidReference", "invalid reference"],
  ["Absent", "absent owner"],
];

/** Granularity of the frame's size, in pixels: smaller changes do not change the layout. */
const STEP = 40;

/** Returns the space for the drawing. */
function useFrame(): [(element: HTMLDivElement | null) => void, Frame] {
  const [frame, setFrame] = useState<Frame>({ width: innerWidth, height: 480 });
  const [element, setElement] = useState<HTMLDivElement | null>(null);
  useEffect(() => {
    if (!element) return;
    const measure = () => setFrame({ width: element.clientWidth, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [element]);
  return [setElement, frame];
}

export function MapView({ route, overview, plan }: { route: Route; overview: Overview | null; plan: string | null }) {
  const { namespace, uid, kinds } = route;
  const selected = route.object ? `${route.object.resource}/${route.object.namespace}/${route.object.name}` : "";
  const extent = `${uid} ${namespace}`;
  const [expanded, setExpanded] = useState<{ extent: string; uids: string[] }>({ extent, uids: [] });
  const uids = expanded.extent === extent ? expanded.uids : [];
  const wanted = { ...(uid ? { uid } : { namespace }), plan: plan ?? "", selected, expand: uids.join(","), kinds };
  const { data: answer, error, refresh } = useLive(
    (signal) => api.map(wanted, signal),
    ["map", uid, namespace, plan, selected, wanted.expand, kinds],
  );
  // Keep the drawing until the one with the plan or the selection arrives, but not once it shows something else.
  const last = useRef<{ extent: string; data: OwnershipMap } | null>(null);
  const absent = error instanceof Refused && error.reason === "NotFound" && !plan;
  if (absent) last.current = null;
  else if (answer) last.current = { extent, data: answer };
  const data = absent ? null : (answer ?? (last.current?.extent === extent ? last.current.data : null));
  const [frameOf, frame] = useFrame();
  const [width, height] = [Math.floor(frame.width / STEP) * STEP || frame.width, Math.floor(frame.height / STEP) * STEP || frame.height];
  const showsNamespace = namespace === "" && uid === "";
  const drawn = useMemo(() => (data && data.nodes.length > 0 ? layout(data, { width: frame.width < NARROW_PIXELS ? frame.width : width, height }, showsNamespace) : null), [data, width, height, showsNamespace]);
  // After a group is expanded by keyboard, the focus moves to its members.
  const entered = useRef("");
  useEffect(() => {
    const first = entered.current && answer?.nodes.find((node) => node.expandedFrom === entered.current);
    if (!first) return;
    entered.current = "";
    document.querySelector<SVGGElement>(`[data-key="${CSS.escape(first.object.uid)}"]`)?.focus();
  }, [answer]);
  const expand = (group: string) => {
    entered.current = group;
    setExpanded({ extent, uids: [...uids, group] });
  };
  const everything = overview && !overview.user.seesAll ? "all that you may see" : "all namespaces";
  const scope = namespace || everything;
  return (
    <section class="card map-card" aria-labelledby="map-title">
      <header class="card-head">
        <h2 id="map-title">{uid ? "Around one object" : `Ownership in ${scope}`}</h2>
        {data && (
          <span class="quiet map-size">
            {plural(data.objects, "object")} in {plural(data.nodes.length, "node")}
            {data.omitted > 0 && `, ${count(data.omitted)} not drawn`}
          </span>
        )}
        {uid && (
          <button type="button" class="button small" onClick={() => go({ uid: "" })}>
            {namespace ? "Whole namespace" : "Everything"}
          </button>
        )}
        {uids.length > 0 && (
          <button type="button" class="button small" onClick={() => setExpanded({ extent, uids: [] })}>
            Fold groups
          </button>
        )}
        {data && <Kinds map={data} />}
      </header>
      <div class={`canvas-frame ${drawn?.isOutline ? "outline" : ""}`} ref={frameOf}>
        {absent && (
          <Empty title={uid ? "There is no such object" : `There is no namespace ${namespace}`}>
            It was deleted, or never existed.{!uid && " Those that exist are in the list above."}
          </Empty>
        )}
        {error && !absent && <Failure error={error} retry={refresh} />}
        {!data && !error && <Loading lines={8} />}
        {data && data.nodes.length === 0 && (
          <Empty title={data.kinds.length > 0 ? "No kind is chosen of which there are objects" : namespace ? "The namespace is empty" : "There is nothing to draw"}>
            {data.kinds.length > 0 ? "Choose kinds above." : "Objects appear here as they are created."}
          </Empty>
        )}
        {drawn && <Canvas drawn={drawn} frame={frame} label={scope + uid} planned={plan !== null && answer !== null} onGroup={expand} selected={route.object} />}
      </div>
      <Legend planned={plan !== null} />
    </section>
  );
}

/** Selects the kinds to draw. */
function Kinds({ map }: { map: OwnershipMap }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const shown = map.kinds.filter((kind) => kind.shown);
  const choose = (resources: string[]) => go({ kinds: resources.length === 0 ? "none" : resources.join(",") });
  useEffect(() => {
    const leave = (event: Event) => {
      if (menu.current?.open && !menu.current.contains(event.target as Node)) menu.current.open = false;
    };
    addEventListener("pointerdown", leave);
    return () => removeEventListener("pointerdown", leave);
  }, []);
  if (map.kinds.length === 0) return null;
  const toggle = (resource: string) => {
    const isShown = shown.some((kind) => kind.resource === resource);
    choose([...shown.map((kind) => kind.resource).filter((one) => one !== resource), ...(isShown ? [] : [resource])]);
  };
  return (
    <details class="kinds" ref={menu} onKeyDown={(event) => event.key === "Escape" && menu.current?.open && (event.stopPropagation(), (menu.current.open = false))}>
      <summary class="button small">
        Kinds: {count(shown.length)} of {count(map.kinds.length)}
      </summary>
      <fieldset class="kinds-list">
        <legend class="hidden">Kinds that are drawn</legend>
        <div class="buttons">
          <button type="button" class="button small" onClick={() => choose(map.kinds.map((kind) => kind.resource))}>
            All
          </button>
          <button type="button" class="button small" onClick={() => go({ kinds: "" })}>
            All but Events
          </button>
        </div>
        {map.kinds.map(({ resource, kind, objects, shown: isShown }) => (
          <label key={resource} title={resource}>
            <input type="checkbox" checked={isShown} onChange={() => toggle(resource)} />
            <KindIcon kind={kind} />
            <span class="grow">{kind}</span>
            <span class="quiet">{count(objects)}</span>
          </label>
        ))}
      </fieldset>
    </details>
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
        (["Deleted", "DeletedLater", "Stuck", "Released"] as Fate[]).map((fate) => (
          <li key={fate}>
            <span class={`swatch fate-${fate}`} /> plan: {words(fate).toLowerCase()}
          </li>
        ))}
    </ul>
  );
}

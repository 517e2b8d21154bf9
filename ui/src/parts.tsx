// Small parts that the views share.
import type { ComponentChildren, TargetedMouseEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Place } from "./api";
import { KindIcon } from "./icons";
import { go, isUnreachable } from "./state";

const PATHS = {
  search: "M11 4a7 7 0 1 0 4.9 12l4.1 4 1-1-4-4.1A7 7 0 0 0 11 4Zm0 1.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11Z",
  pause: "M8 5h3v14H8zm5 0h3v14h-3z",
  play: "M8 5v14l11-7z",
  close: "m6.4 5.3 5.6 5.6 5.6-5.6 1.1 1.1-5.6 5.6 5.6 5.6-1.1 1.1-5.6-5.6-5.6 5.6-1.1-1.1 5.6-5.6-5.6-5.6z",
  copy: "M9 4h9a2 2 0 0 1 2 2v9h-1.5V6a.5.5 0 0 0-.5-.5H9zM6 8h8a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2v-8c0-1.1.9-2 2-2Zm0 1.5a.5.5 0 0 0-.5.5v8c0 .3.2.5.5.5h8a.5.5 0 0 0 .5-.5v-8a.5.5 0 0 0-.5-.5z",
  done: "m9.5 17.6-5-5 1.1-1.1 3.9 3.9 9-9 1.1 1.1z",
  theme: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16Zm0 1.5v13a6.5 6.5 0 0 1 0-13Z",
  open: "m9 6 6 6-6 6-1.1-1.1L12.8 12 7.9 7.1z",
  map: "M5 4h5v5H8.2v2.2h7.6V9H14V4h5v5h-1.7v3.7h-4.6V15H15v5H9v-5h2.2v-2.3H6.700V9H5z",
} as const;

export function Icon({ name, size = 16 }: { name: keyof typeof PATHS; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" fill="currentColor" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Card(props: {
  title: string;
  id: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
  class?: string;
}) {
  return (
    <section class={`card ${props.class ?? ""}`} aria-labelledby={props.id}>
      <header class="card-head">
        <h2 id={props.id}>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <p>{children}</p>}
    </div>
  );
}

export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  return (
    <div class="failure" role="alert">
      <p>{isUnreachable(error) ? "The server does not answer." : error.message}</p>
      {retry && (
        <button type="button" class="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Loading({ lines = 3 }: { lines?: number }) {
  return (
    <div class="loading" role="status">
      <span class="hidden">Loading</span>
      {Array.from({ length: lines }, (_, line) => (
        <span class="bone" key={line} />
      ))}
    </div>
  );
}

export function Command({ text, danger }: { text: string; danger?: boolean }) {
  const [state, setState] = useState<"ready" | "copied" | "refused">("ready");
  const timer = useRef(0);
  const code = useRef<HTMLElement>(null);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setState("copied");
    } catch {
      // The browser denies access to the clipboard: select the text, so that the user can copy it.
      getSelection()?.selectAllChildren(code.current!);
      setState("refused");
    }
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setState("ready"), 3000);
  };
  return (
    <div class={`command ${danger ? "danger" : ""}`}>
      <code ref={code} tabIndex={0} role="textbox" aria-readonly="true" aria-label="Command">
        {text}
      </code>
      {state === "refused" && <span class="quiet">Not copied: press Ctrl+C or ⌘C</span>}
      <button type="button" class="icon-button" onClick={copy} aria-label={state === "copied" ? "Copied" : `Copy: ${text}`}>
        <Icon name={state === "copied" ? "done" : "copy"} />
      </button>
    </div>
  );
}

/** An object by name; a click shows it in the drawer. */
export function ObjectLink({ place, showNamespace = true }: { place: Place; showNamespace?: boolean }) {
  const open = (event: TargetedMouseEvent<HTMLButtonElement>) => {
    event.stopPropagation();
    go({ object: { resource: place.resource, namespace: place.namespace, name: place.name } });
  };
  const text = (
    <>
      <KindIcon kind={place.kind} />
      <span class="kind">{place.kind}</span>{" "}
      <span class="name">{place.name}</span>{" "}
      {showNamespace && place.namespace && <span class="quiet">{place.namespace}</span>}
    </>
  );
  if (!place.resource) return <span class="object">{text}</span>;
  return (
    <button type="button" class="object link" onClick={open} title={`${place.kind}/${place.name}`}>
      {text}
    </button>
  );
}

/** Counts of minutes as bars. */
export function Sparkline({ values, label, width = 120, height = 24 }: { values: number[]; label: string; width?: number; height?: number }) {
  const most = Math.max(1, ...values);
  const step = width / values.length;
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={label} preserveAspectRatio="none">
      <rect x="0" y={height - 1} width={width} height="1" class="spark-base" />
      {values.map((value, place) => {
        const tall = value === 0 ? 0 : Math.max(2, (value / most) * (height - 2));
        return value > 0 && <rect key={place} x={place * step} y={height - tall} width={Math.max(1, step - 0.6)} height={tall} rx="0.5" />;
      })}
    </svg>
  );
}

/** A dialog of the browser: it keeps the focus and closes with Escape. */
export function Dialog(props: { label: string; onClose: () => void; children: ComponentChildren; class?: string }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current!;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  const clicked = (event: TargetedMouseEvent<HTMLDialogElement>) => {
    if (event.target === element.current) props.onClose();
  };
  return (
    <dialog ref={element} class={`dialog ${props.class ?? ""}`} aria-label={props.label} onClose={props.onClose} onClick={clicked}>
      <div class="dialog-body">{props.children}</div>
    </dialog>
  );
}

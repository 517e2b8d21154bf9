// The part of Headlamp's plugin library that the plugin uses, as in @kinvolk/headlamp-plugin 0.14.
// That package depends on a thousand others; the host provides everything at run time as the global `pluginLib`.
declare module "@kinvolk/headlamp-plugin/lib" {
  import type { ReactNode } from "react";

  export interface Route {
    path: string;
    exact?: boolean;
    name?: string;
    sidebar: string | null;
    component: () => ReactNode;
  }
  export interface SidebarEntry {
    parent?: string | null;
    name: string;
    label: string;
    url?: string;
    icon?: string;
  }
  export function registerDetailsViewSection(section: (...properties: any[]) => ReactNode): void;
  export function registerRoute(route: Route): void;
  export function registerSidebarEntry(entry: SidebarEntry): void;
  export function registerSidebarEntryFilter(filter: (entry: SidebarEntry) => SidebarEntry | null): void;
  export interface PluginSettingsDetailsProps {
    data?: Record<string, any>;
    onDataChange?: (data: Record<string, any>) => void;
  }
  export function registerPluginSettings(name: string, component: (properties: PluginSettingsDetailsProps) => ReactNode, displaySaveButton?: boolean): void;
  /** A plugin's settings, which the browser stores. */
  export class ConfigStore<T> {
    constructor(name: string);
    get(): Partial<T> | undefined;
    useConfig(): () => Partial<T> | undefined;
  }
  export const Utils: { getCluster(): string | null };
  export const ApiProxy: {
    request(path: string, parameters?: { method?: string; cluster?: string }, autoLogoutOnAuthError?: boolean): Promise<unknown>;
  };
}

declare module "@kinvolk/headlamp-plugin/lib/CommonComponents" {
  import type { ReactNode } from "react";

  export function SectionBox(properties: { title?: string; children?: ReactNode }): ReactNode;
  export function NameValueTable(properties: { rows: { name: string; value: ReactNode }[] }): ReactNode;
  export function SimpleTable(properties: {
    columns: { label: string; getter: (row: any) => ReactNode }[];
    data: object[];
    emptyMessage?: string;
  }): ReactNode;
  export function Loader(properties: { title: string }): ReactNode;
}

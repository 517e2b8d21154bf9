// Keeps the place that was asked for, and goes there once a session was opened, in this tab or in another one.
const PERIOD_MILLISECONDS = 2000;
if (location.hash) sessionStorage.setItem("place", location.hash);
const look = async () => {
  const answer = await fetch("/ui", { method: "HEAD" }).catch(() => null);
  if (answer?.ok) location.replace("/ui");
};
setInterval(() => document.hidden || look(), PERIOD_MILLISECONDS);
document.addEventListener("visibilitychange", () => document.hidden || look());

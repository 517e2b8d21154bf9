// Keeps the place that was asked for, and goes there once a session was opened, in this tab or in another one.
const PERIOD_MILLISECONDS = 2000;
const COPIED_MILLISECONDS = 3000;
if (location.hash) sessionStorage.setItem("place", location.hash);

// The server answers with this page where the token of a link is not good.
document.getElementById("bad-link").hidden = location.pathname !== "/ui/login";
document.getElementById("of-run").textContent = `kubegc ui --collector ${location.host}`;
for (const button of document.querySelectorAll(".copy")) {
  const code = button.parentElement.querySelector("code");
  button.setAttribute("aria-label", `Copy: ${code.textContent}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // The browser keeps its clipboard: the text is selected, so that a key copies it.
      getSelection().selectAllChildren(code);
      button.textContent = "Press Ctrl+C or ⌘C";
    }
    setTimeout(() => (button.textContent = "Copy"), COPIED_MILLISECONDS);
  });
}

const look = async () => {
  const answer = await fetch("/ui", { method: "HEAD" }).catch(() => null);
  if (answer?.ok) location.replace("/ui");
};
setInterval(() => document.hidden || look(), PERIOD_MILLISECONDS);
document.addEventListener("visibilitychange", () => document.hidden || look());

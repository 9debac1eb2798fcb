// @ts-check
// Light or dark: the system's preference unless the user chose. A plain script in the head, run before anything is
// drawn, so that a page never flashes in the other colours.
(() => {
  const KEY = "streamoe.theme";
  const root = document.documentElement;
  const read = () => {
    try {
      return localStorage.getItem(KEY) ?? "";
    } catch {
      return "";
    }
  };
  root.dataset.theme = read();

  const isDark = () => root.dataset.theme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);

  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme")?.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem(KEY, root.dataset.theme);
      } catch {
        // Chosen for as long as this page is open.
      }
      document.dispatchEvent(new Event("theme"));
    });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("theme")));
})();

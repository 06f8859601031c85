// Before anything is painted: the scheme that was chosen here, if one was. A classic script, since modules come late.
(() => {
  try {
    const chosen = localStorage.getItem("fairlead.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // storage may be turned off; then the system's scheme it is
  }
})();

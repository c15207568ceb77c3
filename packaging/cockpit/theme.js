/* SPDX-License-Identifier: Apache-2.0 */
/* Follow the light or dark style of Cockpit. A classic script in the head runs before the first paint. */
"use strict";

(() => {
    const system = window.matchMedia("(prefers-color-scheme: dark)");

    function show(chosen) {
        const style = chosen || window.localStorage.getItem("shell:style") || "auto";
        const dark = style === "dark" || (style === "auto" && system.matches);
        document.documentElement.classList.toggle("pf-v6-theme-dark", dark);
    }

    window.addEventListener("storage", event => {
        if (event.key === "shell:style")
            show();
    });
    // The shell sends this event to its frames, because a change of the storage is not reported within a window.
    window.addEventListener("cockpit-style", event => show(event.detail.style));
    system.addEventListener("change", () => show());
    show();
})();

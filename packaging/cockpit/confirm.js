/* SPDX-License-Identifier: Apache-2.0 */
/* A question before a request that changes the host. */

import { byId } from "./dom.js";

const dialog = byId("confirm");

/* Resolve to true if the button named `yes` was used. Escape means no. */
export function confirm(title, parts, yes) {
    byId("confirm-title").textContent = title;
    byId("confirm-body").replaceChildren(...parts);
    byId("confirm-yes").textContent = yes;
    dialog.returnValue = "";
    dialog.showModal();
    return new Promise(resolve =>
        dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

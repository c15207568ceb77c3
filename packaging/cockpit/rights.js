/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the session has administrative access. */

import { byId } from "./dom.js";

const permission = window.cockpit.permission({ admin: true });
const listeners = [];

/* False until it is known. */
export const isAdmin = () => permission.allowed === true;

/* Call `listener` at each change, which the button of the shell makes during a session as well. */
export const onRights = listener => listeners.push(listener);

permission.addEventListener("changed", () => {
    const limited = permission.allowed === false;
    byId("limited").hidden = !limited;
    document.documentElement.classList.toggle("limited", limited);
    listeners.forEach(listener => listener());
});

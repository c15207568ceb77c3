/* SPDX-License-Identifier: Apache-2.0 */
/* Start nodeagent.service while it is stopped. */

import { byId, failure } from "./dom.js";
import { isAdmin, onRights } from "./rights.js";

const button = byId("start");
let starting = false;

const refresh = () => {
    button.disabled = starting || !isAdmin();
};

/* Remove the failure of an earlier start. */
export const forgetStart = () => byId("start-result").replaceChildren();

button.addEventListener("click", async () => {
    starting = true;
    refresh();
    forgetStart();
    try {
        await window.cockpit.spawn(["systemctl", "start", "nodeagent.service"], { superuser: "require", err: "message" });
    } catch (error) {
        const hint = "journalctl -u nodeagent.service has the cause; nodeagent settings check finds errors in the settings";
        byId("start-result").replaceChildren(failure({
            reason: "nodeagent.service did not start", message: error.message, hint,
        }));
    } finally {
        starting = false;
        refresh();
    }
});

onRights(refresh);

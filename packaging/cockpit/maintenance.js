/* SPDX-License-Identifier: Apache-2.0 */
/* Start and stop the maintenance of the host. */

import { byId, failure, localTime, localTimes } from "./dom.js";
import { isAdmin, onRights } from "./rights.js";

export class MaintenanceSection {
    #caller;
    #busy = false;
    #status = null;

    constructor(caller) {
        this.#caller = caller;
        byId("maintenance-form").addEventListener("submit", event => {
            event.preventDefault();
            this.#run(() => this.#start());
        });
        byId("maintenance-stop").addEventListener("click", () => this.#run(() => caller.call("StopMaintenance")));
        onRights(() => this.#refresh());
    }

    show(status) {
        this.#status = status;
        if (status !== null) {
            const note = JSON.parse(status.Status).maintenance;
            const until = note?.until ? `until ${localTime(note.until)}` : "until it is stopped";
            byId("maintenance-now").textContent = note
                ? `${note.requester} has this host for "${note.reason}" (${note.state}) since ${localTime(note.since)}, ${until}. ${localTimes(note.message)}`
                : "This host is not in maintenance. During one, nodeagent does not stage, update or reboot it.";
        }
        this.#refresh();
    }

    #refresh() {
        const active = Boolean(this.#status?.Maintenance);
        const may = isAdmin() && !this.#busy && this.#status !== null;
        byId("maintenance-form").hidden = active;
        byId("maintenance-active").hidden = !active;
        byId("maintenance-start").disabled = byId("maintenance-stop").disabled = !may;
    }

    async #run(request) {
        this.#busy = true;
        this.#refresh();
        byId("maintenance-result").replaceChildren();
        try {
            await request();
        } catch (error) {
            byId("maintenance-result").replaceChildren(failure(error));
        } finally {
            this.#busy = false;
            this.#refresh();
        }
    }

    async #start() {
        // The call comes from root, so the user of the session is named as the requester.
        const { name } = await window.cockpit.user();
        await this.#caller.call("StartMaintenance", byId("maintenance-reason").value, {
            requester: { t: "s", v: name },
            seconds: { t: "t", v: Number(byId("maintenance-for").value) },
            wait: { t: "b", v: byId("maintenance-wait").checked },
        });
        byId("maintenance-form").reset();
    }
}

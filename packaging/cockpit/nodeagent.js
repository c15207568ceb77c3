/* SPDX-License-Identifier: Apache-2.0 */
/* The page: connects the bus with the sections. No framework, and nothing to build. */

import { Caller, watch } from "./bus.js";
import { byId } from "./dom.js";
import { HistorySection } from "./history.js";
import { MaintenanceSection } from "./maintenance.js";
import { onRights } from "./rights.js";
import { forgetStart } from "./service.js";
import { showStatus } from "./status.js";
import { UpdateSection } from "./update.js";

const caller = new Caller();
const update = new UpdateSection(caller);
const maintenance = new MaintenanceSection(caller);
const history = new HistorySection(caller);
let running = false;
onRights(() => {
    caller.renew();
    // What could not be read before may be read now.
    if (running)
        history.read();
});

watch({
    changed(status) {
        byId("lost").hidden = true;
        if (status !== null)
            forgetStart();
        showStatus(status);
        update.show(status);
        maintenance.show(status);
        if (status !== null && !running)
            history.read();
        running = status !== null;
        document.body.hidden = false;
    },
    finished() {
        update.forget();
        history.read();
    },
    disconnected(why) {
        byId("lost-why").textContent = why;
        byId("lost").hidden = false;
        // Nothing can be requested any more.
        update.show(null);
        maintenance.show(null);
        document.body.hidden = false;
    },
});

/* The page: connects the bus with the sections. No framework, and nothing to build. */

import { watch } from "./bus.js";
import { byId } from "./dom.js";
import { forgetStart } from "./service.js";
import { showStatus } from "./status.js";

watch({
    changed(status) {
        byId("lost").hidden = true;
        if (status !== null)
            forgetStart();
        showStatus(status);
        document.body.hidden = false;
    },
    finished() {},
    disconnected(why) {
        byId("lost-why").textContent = why;
        byId("lost").hidden = false;
        document.body.hidden = false;
    },
});

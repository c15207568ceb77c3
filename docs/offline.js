// SPDX-License-Identifier: Apache-2.0
// The search of the site runs in a worker, and browsers start none for a page of file://. There, a hidden frame is the
// worker. The theme would load such a script from another host.
if (location.protocol === "file:" && !("IFrameWorker" in window)) {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source === this.inner) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      const script = this.inner.document;
      script.open();
      // What the worker posts goes to the page. English needs no further scripts.
      script.write("<script>postMessage = (data) => parent.postMessage(data, '*');</scr" + "ipt>");
      script.write(`<script src="${url}"></scr` + "ipt>");
      script.close();
      this.ready = new Promise((resolve) => { this.inner.onload = resolve; });
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}

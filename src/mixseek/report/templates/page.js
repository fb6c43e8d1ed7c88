"use strict";
{
  const waiting = [...document.querySelectorAll("noscript")];
  const show = (round) => { if (round?.isConnected) round.outerHTML = round.textContent; };
  const later = self.requestIdleCallback ?? ((work) => setTimeout(work, 50));
  const goOn = (idle) => {
    do show(waiting.shift()); while (waiting.length && idle?.timeRemaining() > 8);
    if (waiting.length) later(goOn);
  };
  addEventListener("toggle", ({ target }) => show(target.querySelector(":scope > noscript")), true);
  addEventListener("beforeprint", () => waiting.splice(0).forEach(show));
  addEventListener("load", () => later(goOn));
}

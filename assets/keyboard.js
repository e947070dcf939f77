// A scrollable table, formula or output must be reachable by keyboard: give each box that really scrolls a place in the tab order.
(() => {
  const boxes = ".pst-scrollable-table-container, .cell_output .output, div.math, div.highlight > pre";
  const mark = () => {
    for (const box of document.querySelectorAll(boxes)) {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else if (box.getAttribute("tabindex") === "0") box.removeAttribute("tabindex");
    }
  };
  window.addEventListener("load", mark);
  window.addEventListener("resize", mark);
})();

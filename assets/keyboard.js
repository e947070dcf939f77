// A scrollable table, formula, picture or output must be reachable by keyboard: give each box that really scrolls a place in the tab order.
(() => {
  const boxes = ".pst-scrollable-table-container, .cell_output .output, .cell_output figure, .admonition, div.math, mjx-container[display], div.highlight > pre";
  const mark = () => {
    // a picture as wide as the text column would have letters of four pixels on a telephone: style.css keeps it wide there
    for (const picture of document.querySelectorAll(".cell_output figure > img")) {
      picture.classList.toggle("cevit-wide", picture.naturalWidth > 650);
    }
    for (const box of document.querySelectorAll(boxes)) {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else if (box.getAttribute("tabindex") === "0") box.removeAttribute("tabindex");
    }
  };
  window.addEventListener("load", mark);
  window.addEventListener("resize", mark);
})();
// In the list of pages an arrow unfolds the pages below one: it needs a name that a screen reader can say.
(() => {
  document.addEventListener("DOMContentLoaded", () => {
    for (const arrow of document.querySelectorAll(".bd-sidebar-primary details > summary")) {
      const page = arrow.closest("li")?.querySelector("a");
      arrow.setAttribute("aria-label", `Pages below ${page ? page.textContent.trim() : "this one"}`);
    }
    // the entries of the bibliography's list are items of a list
    for (const entry of document.querySelectorAll(".citation-list > .citation")) entry.setAttribute("role", "listitem");
  });
})();

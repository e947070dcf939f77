// What the printed book needs of its page; publication.py loads it into the browser that prints.

// How the book differs on paper from the screen: a smaller type, no bars and buttons, chapters on a new page.
const STYLE = `
* { animation: none !important; transition: none !important; }
.bd-main .bd-content, .bd-main .bd-content .bd-article { margin: 0 !important; padding: 0 !important; }
.bd-article-container { max-width: none !important; }
.bd-header, .bd-footer, .prev-next-footer, .search-button__wrapper, details.hide > summary { display: none !important; }
.admonition, table { break-inside: auto !important; box-shadow: none !important; }
.cell_input, div.highlight, table:not(:has(tr:nth-child(12))) { break-inside: avoid !important; }
.admonition-title, dl.py > dt, dl.field-list > dt, p:has(+ .math), figcaption { break-after: avoid; }
.cell_output .output, .cell_output div.highlight, .cell_output pre {
  display: block !important; break-inside: auto !important; overflow: visible !important; orphans: 6; widows: 6;
}
dl.field-list { display: block !important; }
figure, .cell_output img { break-inside: avoid; }
figcaption, figcaption * { color: #333 !important; font-weight: 400 !important; }
img { max-height: 135mm; object-fit: contain; }
p, li { orphans: 3; widows: 3; }
mjx-container[display="true"] { overflow: visible !important; }
.bd-main .bd-content h1, .bd-main .bd-content h2, .bd-main .bd-content h3 { margin-top: 1.2em; }
span[id^="document-"] { display: block; break-before: page; }
span[id^="document-"] + section > h2 { font-size: 2.3rem; margin-top: 0 !important; }
#cevit-front { height: 235mm; padding-top: 60mm; text-align: center; break-after: page; }
#cevit-front h1 { display: block !important; font-size: 3.2em !important; }
#jb-print-toc { break-after: page; }
#jb-print-toc ul { list-style: none !important; }
`;

// What a sheet cannot scroll is made smaller; file names lead nowhere on another machine, nor a call beside its badge.
function fitForPaper() {
  document.head.appendChild(document.createElement('style')).textContent = STYLE;
  document.querySelectorAll('details.hide').forEach(found => {
    if (/^\s*(live_)?badge\(/.test(found.querySelector('pre')?.textContent ?? '')) found.remove();
  });
  document.querySelectorAll('details').forEach(found => found.open = true);
  document.querySelectorAll('a[href]').forEach(found => {
    if (found.protocol === 'file:' && !found.hash) found.removeAttribute('href');
  });
  const wide = 'mjx-container[display="true"], .cell_output .output, .pst-scrollable-table-container';
  for (const found of document.querySelectorAll(wide)) {
    found.style.setProperty('overflow', 'auto', 'important');
    const share = found.clientWidth / found.scrollWidth;
    found.style.removeProperty('overflow');
    if (share > 0 && share < 1) found.style.zoom = share;
  }
}

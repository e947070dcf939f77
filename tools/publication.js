// What the printed book needs of its page; publication.py loads it into the browser that prints.

// How the book differs on paper from the screen: a smaller type, no bars and buttons, chapters on a new page.
const STYLE = `
* { animation: none !important; transition: none !important; }
.bd-main .bd-content, .bd-main .bd-content .bd-article { margin: 0 !important; padding: 0 !important; }
.bd-article-container { max-width: none !important; }
.bd-header, .bd-footer, .prev-next-footer, .search-button__wrapper, details.hide > summary, details:not([open]) { display: none !important; }
.admonition, table { break-inside: auto !important; box-shadow: none !important; }
.cell_input, div.highlight, table:not(:has(tr:nth-child(12))) { break-inside: avoid !important; }
.admonition-title, dl.py > dt, dl.field-list > dt, p:has(+ .math), figcaption { break-after: avoid; }
.cell_output .output, .cell_output div.highlight, .cell_output pre {
  display: block !important; break-inside: auto !important; overflow: visible !important; orphans: 6; widows: 6;
}
.cell_input:has(+ .cell_output img) { break-after: avoid; }
.solution { margin: 0 0 0.4em !important; padding: 0 0.8em !important; }
figure, .cell_output img { break-inside: avoid; }
figcaption, figcaption * { color: #333 !important; font-weight: 400 !important; }
img { max-height: 110mm; object-fit: contain; }
body, p, li { line-height: 1.45 !important; }
div.highlight pre { line-height: 1.3; padding: 0.4em 0.8em; }
p, li { orphans: 3; widows: 3; }
mjx-container[display="true"] { overflow: visible !important; }
.bd-main .bd-content h1, .bd-main .bd-content h2, .bd-main .bd-content h3 { margin-top: 1.2em; }
span[id^="document-"] { display: block; break-before: page; }
span[id^="document-"] + section > h2 { font-size: 2.3rem; margin-top: 0 !important; }
#cevit-front { height: 235mm; padding-top: 60mm; text-align: center; break-after: page; }
#cevit-front h1 { display: block !important; font-size: 3.2em !important; }
#jb-print-toc { break-after: page; }
#jb-print-toc > ul { columns: 2; font-size: 0.75em; }
#jb-print-toc ul { list-style: none !important; padding-left: 0; }
#jb-print-toc li { break-inside: avoid; margin: 0; }
#jb-print-toc li li { padding-left: 1em; font-size: 0.9em; }
`;

const CHAPTER = 'span[id^="document-"] + section';
const CHAPTERS = `article > section, ${CHAPTER}`;

// The students' edition has no reference, no notes for teachers and no code that the page hides; solutions stand at its end.
function forStudents(article) {
  const leftOut = 'span[id^="document-book/api/"], span[id="document-book/teaching_notes"]';
  for (const place of article.querySelectorAll(leftOut)) {
    article.querySelectorAll(`a[href*="${place.id}"]`).forEach(link => link.removeAttribute('href'));
    place.nextElementSibling.remove();
    place.remove();
  }
  article.querySelectorAll('details.above-input .cell_input').forEach(found => found.remove());
  article.querySelectorAll('details.hide:not(:has(.cell_output))').forEach(found => found.remove());
  linkWithin(article);
  article.insertAdjacentHTML('beforeend', '<span id="document-solutions"></span><section id="solutions"><h2>Solutions</h2></section>');
  let exercise;
  for (const found of article.querySelectorAll('div.exercise, div.solution')) {
    if (found.matches('.exercise')) exercise = found;
    else {
      const title = exercise.querySelector('.admonition-title').textContent.trim();
      found.querySelector('.admonition-title').innerHTML = `<a href="#${exercise.id}">${title}</a>`;
      found.classList.remove('toggle-hidden');
      article.lastElementChild.append(found);
    }
  }
}

// Several pages have an anchor of the same name: each is called after its page, and links between pages lead within the one.
function linkWithin(article) {
  const name = path => path.split('/').pop().replace(/\.(html|md)$/, '');
  const page = found => name(found.closest(CHAPTER)?.previousElementSibling.id ?? 'preface');
  const places = new Map([['preface', '#main-content']]);
  article.querySelectorAll('span[id^="document-"]').forEach(found => places.set(name(found.id), `#${found.id}`));
  for (const link of article.querySelectorAll('a[href]:not([href*=":"])')) {
    let [path, ...anchors] = link.getAttribute('href').split('#');
    if (anchors[0]?.startsWith('document-')) path = anchors.shift();
    const place = path ? name(path) : page(link);
    link.setAttribute('href', anchors.length ? `#${place}--${anchors[0]}` : places.get(place) ?? '#');
  }
  const named = [...article.querySelectorAll('[id]:not([id^="document-"], svg *)')];
  named.map(found => [found, page(found)]).forEach(([found, place]) => { found.id = `${place}--${found.id}`; });
}

// Contents two deep, in the place of the theme's, which are empty.
function tableOfContents() {
  const entry = (section, inside = '') => {
    const title = section.querySelector('h1, h2, h3').cloneNode(true);
    title.querySelector('.headerlink')?.remove();
    return `<li><a href="#${section.id}">${title.innerHTML}</a>${inside}</li>`;
  };
  const listed = [...document.querySelectorAll(CHAPTERS)].map(chapter => {
    const sections = [...chapter.querySelectorAll(`:scope > section:has(> h2, > h3):not(${CHAPTER})`)];
    const own = sections.filter(each => !/^(Three lines|Exercises|Where to go)/.test(each.textContent.trim()));
    return entry(chapter, `<ul>${own.map(each => entry(each)).join('')}</ul>`);
  });
  document.querySelector('#jb-print-toc').innerHTML = `<h2>Contents</h2><ul>${listed.join('')}</ul>`;
}

// What a sheet cannot scroll is made smaller; file names lead nowhere on another machine.
function fitForPaper() {
  document.head.appendChild(document.createElement('style')).textContent = STYLE;
  forStudents(document.querySelector('article.bd-article'));
  tableOfContents();
  document.querySelectorAll('details').forEach(found => found.open = found.matches('.hide, .sd-dropdown'));
  for (const found of document.querySelectorAll('a[href]')) {
    const lost = found.protocol === 'file:' && !document.getElementById(decodeURIComponent(found.hash.slice(1)));
    if (lost) found.removeAttribute('href');
  }
  const wide = 'mjx-container[display="true"], .cell_output .output, .pst-scrollable-table-container';
  for (const found of document.querySelectorAll(wide)) {
    found.style.setProperty('overflow', 'auto', 'important');
    const share = found.clientWidth / found.scrollWidth;
    found.style.removeProperty('overflow');
    if (share > 0 && share < 1) found.style.zoom = share;
  }
}

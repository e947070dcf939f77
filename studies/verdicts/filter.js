// Shows the rows that have the chosen verdict and section; where scripts do not run, all rows are there.
(() => {
  const form = document.currentScript.previousElementSibling.querySelector("form");
  const rows = [...form.parentElement.querySelectorAll("tbody tr")];
  const choose = () => {
    const wanted = [...new FormData(form)].filter(([, value]) => value);
    for (const row of rows) row.hidden = wanted.some(([name, value]) => row.dataset[name] !== value);
    form.querySelector("output").value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
  };
  form.hidden = false;
  form.addEventListener("change", choose);
  window.addEventListener("hashchange", () => { form.reset(); choose(); });  // a link to a row shows it
  choose();
})();

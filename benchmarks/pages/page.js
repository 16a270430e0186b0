// Sorts a table by the column whose title is clicked; what is not known stays last. Nothing else needs a script.
for (const table of document.querySelectorAll("table.sorted")) {
  const body = table.tBodies[0], titles = [...table.tHead.rows[0].cells]
  titles.forEach((title, column) => {
    const button = document.createElement("button")
    button.type = "button"
    button.append(...title.childNodes)
    title.append(button)
    button.addEventListener("click", () => {
      const upward = title.getAttribute("aria-sort") !== "ascending"
      titles.forEach(one => one.removeAttribute("aria-sort"))
      title.setAttribute("aria-sort", upward ? "ascending" : "descending")
      const key = row => row.cells[column].dataset.value
      const compared = (a, b) => (isNaN(a - b) ? a.localeCompare(b) : a - b) * (upward ? 1 : -1)
      body.append(...[...body.rows].sort((a, b) => !key(a) - !key(b) || compared(key(a), key(b))))
    })
  })
}

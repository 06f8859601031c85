// What comes first in the search: a heading that has all of the query, then pages for readers, then the records.
var Scorer = {
  score: (result) => {
    const [page, , , , score, , kind] = result;
    if (kind === "title") return score + 100;
    if (page === "questions") return score + 5;
    if (page.startsWith("decisions/") || page.startsWith("papers/")) return score - 20;
    return page.startsWith("reference/") ? score - 10 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

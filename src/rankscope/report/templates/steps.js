// ---- the steps of all ranks: a map, and bars of what is chosen in it
(() => {
  const data = JSON.parse(document.getElementById("data").textContent).heat, steps = document.getElementById("steps");
  if (data) heatMap(data, data.compute ? stepBars(data) : () => {});
  else if (steps) steps.hidden = true;
})();

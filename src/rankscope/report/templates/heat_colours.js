// ---- colours of the maps: those of the page's style, light or dark
const ofStyle = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const css = (rgb) => `rgb(${rgb[0]} ${rgb[1]} ${rgb[2]})`;

function palette(signed) {
  const hex = (name) => [1, 3, 5].map((at) => parseInt(ofStyle(name).slice(at, at + 2), 16));
  const mix = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * t));
  const stops = (signed ? ["--div0", "--div1", "--div2"] : ["--seq0", "--seq1", "--seq2"]).map(hex);
  return Array.from({ length: 256 }, (_, i) => {
    const t = i / 127.5;
    return t <= 1 ? mix(stops[0], stops[1], t) : mix(stops[1], stops[2], t - 1);
  });
}

const luminance = (rgb) => [0.2126, 0.7152, 0.0722].reduce((sum, part, i) => {
  const x = rgb[i] / 255;
  return sum + part * (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
}, 0);

// The larger of two values, of which each may be unknown.
const larger = (a, b) => (a === null ? b : b === null ? a : b > a ? b : a);
